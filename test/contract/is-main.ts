// Whether a file is what node was started with, or is only imported by another.
import { pathToFileURL } from 'node:url';

export function isMain(moduleUrl: string): boolean {
  return process.argv[1] !== undefined && pathToFileURL(process.argv[1]).href === moduleUrl;
}
