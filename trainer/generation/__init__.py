"""More tasks for an environment, made of those it has: explore, abstract, verify by executing, filter. Free of torch.

1. *Originals* are problems of the training split. An *attempt* is a list of calls that solves one, found by an explorer
   (`search`, the class's own `solution`, or a model).
2. A *template* is an attempt with slots: what question and calls share, and what calls take from earlier answers. It
   counts only where it solves other originals under their own answers, or where the class has a `solution` that reaches
   the same answer from each new question alone.
3. A *task* is a template filled with other values. Its answer is what the calls give in a fresh instance; the
   environment's own grader must reward them, twice, and must not reward doing nothing.
4. A task that repeats an original or another task, or that is near to a problem of validation or test, is refused.

Everything is drawn by keys (seed and number), so a set that was interrupted goes on to the same bytes. All that is
known of an environment is its contract (`trainer.envs.base`); no environment has code here.
"""
