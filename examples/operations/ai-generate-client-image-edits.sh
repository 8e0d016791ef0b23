# A picture in a form; here it has one pixel.
# #region sample
printf %s iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg== | base64 -d |
  curl http://127.0.0.1:43127/v1/images/edits \
  -H "Authorization: Bearer $TOWNHALL_TOKEN" \
  -F model=acme/painter \
  -F prompt='The same in green' \
  -F 'image=@-;filename=boat.png;type=image/png'
# #endregion
