# A recording in a form; here it is an empty one.
# #region sample
printf %s UklGRiQAAABXQVZFZm10IBAAAAABAAEAgD4AAAB9AAACABAAZGF0YQAAAAA= | base64 -d |
  curl http://127.0.0.1:43127/v1/audio/transcriptions \
  -H "Authorization: Bearer $TOWNHALL_TOKEN" \
  -F model=acme/listener \
  -F 'file=@-;filename=speech.wav;type=audio/wav'
# #endregion
