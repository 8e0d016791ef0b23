# Calls a gateway and an agent with classes that quicktype generated from their documents.
import json
import os
import urllib.error
import urllib.request

import agent
import gateway


def call(url, token, body=None):
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        return json.load(error)


base, token = os.environ["GATEWAY_URL"], os.environ["GATEWAY_TOKEN"]
models = gateway.ModelList.from_dict(call(f"{base}/v1/ai/models", token))
question = {"model": "local/echo", "messages": [{"role": "user", "content": "Good morning"}]}
answer = gateway.ChatCompletion.from_dict(call(f"{base}/v1/ai/chat/completions", token, question))
refusal = gateway.Problem.from_dict(call(f"{base}/v1/ai/models/no%2Fmodel", token))

base, token = os.environ["AGENT_URL"], os.environ["AGENT_TOKEN"]
session = agent.Session.from_dict(call(f"{base}/api/sdk/sessions", token, {"title": "From Python"}))
prompt = {"text": "Good morning"}
receipt = agent.PromptReceipt.from_dict(call(f"{base}/api/sdk/sessions/{session.id}/prompt", token, prompt))
missing = agent.Problem.from_dict(call(f"{base}/api/sdk/sessions/ses_none", token))

print(
    json.dumps(
        {
            "models": [model.id for model in models.items],
            "text": answer.choices[0].message.content,
            "refusal": refusal.error.code,
            "session": receipt.session_id == session.id,
            "missing": missing.error.code,
        }
    )
)
