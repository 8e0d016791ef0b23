/**
 * Whether the address is of a file that a provider may fetch. A server of models on the operator's
 * machine would read a `file:` address from its own disk.
 */
export function isRemoteFile(address: string): boolean {
  return /^(?:https?|gs|s3):\/\//i.test(address) && URL.canParse(address);
}
