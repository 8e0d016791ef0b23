# Streams an answer with Python alone, without a package.
# Run it beside `npm start`: python3 examples/stream.py "How do I stream an answer?"
import json
import os
import sys
import urllib.request

base_url = os.environ.get("TOWNHALL_URL", "http://127.0.0.1:43127")
token = os.environ.get("TOWNHALL_TOKEN") or open("data/local.token").read().strip()
prompt = sys.argv[1] if len(sys.argv) > 1 else "How do I stream an answer?"

# #region stream
request = urllib.request.Request(
    f"{base_url}/v1/chat/completions",
    headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    data=json.dumps(
        {
            "model": "local/guide",
            "stream": True,
            "messages": [{"role": "user", "content": prompt}],
        }
    ).encode(),
)
with urllib.request.urlopen(request) as response:
    for line in response:
        data = line.decode().removeprefix("data: ").strip()
        if not data.startswith("{"):
            continue
        chunk = json.loads(data)
        if "error" in chunk:
            raise RuntimeError(chunk["error"]["message"])
        for choice in chunk["choices"]:
            print(choice["delta"].get("content") or "", end="", flush=True)
print()
# #endregion
