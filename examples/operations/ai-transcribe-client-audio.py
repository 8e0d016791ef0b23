# A recording in a form, with the standard library alone.
# #region sample
import base64
import os
import urllib.request

sound = base64.b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEAgD4AAAB9AAACABAAZGF0YQAAAAA=")
edge = b"--form-edge\r\n"
model = b'Content-Disposition: form-data; name="model"\r\n\r\nacme/listener\r\n'
head = b'Content-Disposition: form-data; name="file"; filename="speech.wav"\r\nContent-Type: audio/wav\r\n\r\n'
request = urllib.request.Request(
    "http://127.0.0.1:43127/v1/audio/transcriptions",
    data=edge + model + edge + head + sound + b"\r\n--form-edge--\r\n",
    headers={
        "Authorization": f"Bearer {os.environ['TOWNHALL_TOKEN']}",
        "Content-Type": "multipart/form-data; boundary=form-edge",
    },
)
with urllib.request.urlopen(request) as answer:
    print(answer.read().decode())
# #endregion
