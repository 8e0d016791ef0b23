/**
 * Whether a provider may fetch the file at this address. A model server on the operator's machine would read
 * a `file:` address from its own disk.
 */
export function isRemoteFile(address: string): boolean {
  return /^(?:https?|gs|s3):\/\//i.test(address) && URL.canParse(address);
}
