// The style sheets of the portal.
import { readFileSync } from 'node:fs';
import path from 'node:path';

export function readStyle(name: string): string {
  return readFileSync(path.join(import.meta.dirname, name), 'utf8');
}
