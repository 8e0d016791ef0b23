// Reads members of a request whose types the schema leaves open. Errors name the path of the member.
import { Problem } from '../../../../kernel/problem.ts';

export function readString(value: unknown, path: string): string {
  if (typeof value === 'string') return value;
  throw invalidMember(path, 'must be a string');
}

export function readList(value: unknown, path: string): unknown[] {
  if (Array.isArray(value)) return value;
  throw invalidMember(path, 'must be a list');
}

export function readObject(value: unknown, path: string): Record<string, unknown> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value))
    return value as Record<string, unknown>;
  throw invalidMember(path, 'must be an object');
}

/** A number, or undefined if the member is absent or null. */
export function readNumber(value: unknown, path: string): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value === 'number') return value;
  throw invalidMember(path, 'must be a number');
}

const maxToolNameLength = 128;

/** The name of a tool. It is limited because it is sent upstream with each call and each result. */
export function readToolName(value: unknown, path: string): string {
  const name = readString(value, path);
  if (name.length <= maxToolNameLength) return name;
  throw invalidMember(path, `must have at most ${maxToolNameLength} characters`);
}

/** A 400 for a member of the wrong shape. `message` continues a sentence that begins with the path. */
export function invalidMember(path: string, message: string): Problem {
  return new Problem(
    'bad_request',
    'invalid_request',
    `The request does not match the format: ${path} ${message}.`,
    { param: path, details: [{ path, message }] },
  );
}
