// Limits the size of the tools and answer schemas of a call. The provider packages
// serialize a translated call twice in one turn of the event loop, and ten megabytes
// of definitions would block it for more than 50 ms.
import { Problem } from '../../../kernel/problem.ts';
import { approximateJsonBytes } from './translation/json-size.ts';

/** Maximum size of all tools and answer schemas of one call together, as JSON. */
export const maxDefinitionBytes = 1024 * 1024;

// The members that hold tools or answer schemas, over all formats: `text` is an object
// in the responses format, and `functions` are the older tools of chat completions.
const definitionMembers = [
  'tools',
  'functions',
  'response_format',
  'responseFormat',
  'output_format',
  'output_config',
  'text',
] as const;

/** Throws a 413 if the definitions exceed 1 MiB together; it names the tool or schema that goes beyond. */
export function checkDefinitions(body: object): void {
  let remainingBytes = maxDefinitionBytes;
  for (const member of definitionMembers) {
    const value = (body as Record<string, unknown>)[member];
    if (typeof value !== 'object' || value === null) continue;
    const parts = Array.isArray(value) ? (value as unknown[]) : [value];
    for (const [index, part] of parts.entries()) {
      remainingBytes -= approximateJsonBytes(part, remainingBytes);
      if (remainingBytes < 0) throw tooLarge(Array.isArray(value) ? `${member}[${index}]` : member);
    }
  }
}

function tooLarge(param: string): Problem {
  return new Problem(
    'too_large',
    'request_too_large',
    `The tools and schemas of a call may have at most 1 MiB together; ${param} exceeds this limit. ` +
      'Send fewer or shorter tools and schemas.',
    { param },
  );
}
