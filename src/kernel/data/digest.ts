// SHA-256 over several parts.
import { createHash } from 'node:crypto';

/** A NUL follows each part, so that `ab`, `c` and `a`, `bc` differ. */
export function digest(...parts: (string | Uint8Array)[]): Buffer {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part).update('\0');
  return hash.digest();
}
