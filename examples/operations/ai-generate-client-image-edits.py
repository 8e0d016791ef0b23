# A picture in a form, with the standard library alone.
# #region sample
import base64
import os
import urllib.request

picture = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
edge = b"--form-edge\r\n"
model = b'Content-Disposition: form-data; name="model"\r\n\r\nacme/painter\r\n'
prompt = b'Content-Disposition: form-data; name="prompt"\r\n\r\nThe same in green\r\n'
head = b'Content-Disposition: form-data; name="image"; filename="boat.png"\r\nContent-Type: image/png\r\n\r\n'
request = urllib.request.Request(
    "http://127.0.0.1:43127/v1/images/edits",
    data=edge + model + edge + prompt + edge + head + picture + b"\r\n--form-edge--\r\n",
    headers={
        "Authorization": f"Bearer {os.environ['TOWNHALL_TOKEN']}",
        "Content-Type": "multipart/form-data; boundary=form-edge",
    },
)
with urllib.request.urlopen(request) as answer:
    print(answer.read().decode())
# #endregion
