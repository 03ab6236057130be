"""The dashboard: what a workspace holds, as one self-contained page.

1. `documents` answers questions about the workspace with small JSON documents; it writes nothing.
2. `page` makes one HTML file of the parts in `page/`; its scripts ask for documents and show them as text.
3. `web` serves both to a browser on this machine (`mcp-evo dashboard`), behind `access`; `deciding` carries out what a
   person decides there. `mcp_app` gives page and documents to MCP clients that show pages, for reading only.
4. `running` tells others that a dashboard is open.
"""
