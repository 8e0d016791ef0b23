// Whether a file is the program that node runs, or is imported by another.
import { pathToFileURL } from 'node:url';

export function isMain(moduleUrl: string): boolean {
  return process.argv[1] !== undefined && pathToFileURL(process.argv[1]).href === moduleUrl;
}
