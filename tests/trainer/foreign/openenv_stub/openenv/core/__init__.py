from openenv.core.env_client import EnvClient as EnvClient
