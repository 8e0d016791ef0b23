// Limits the JSON values of a translated conversation: the inputs of its tool calls and the tool results that
// are JSON. Provider packages serialize each value to a string, and that string again within the request,
// which blocks the event loop. Tool results that are plain text are serialized only once and are not limited
// here.
import { Problem } from '../../../../kernel/problem.ts';
import type { ModelCall, Prompt } from '../../hub/language-model.ts';
import { approximateJsonBytes } from './json-size.ts';

/** Maximum size of all tool inputs and JSON results of one call together, as JSON with its escapes. */
export const maxToolValueBytes = 2 * 1024 * 1024;

/** Throws a 413 if the JSON values exceed the limit together; it names the tool call that goes beyond. */
export function checkToolValues({ prompt, memberNames }: Pick<ModelCall, 'prompt' | 'memberNames'>): void {
  let remainingBytes = maxToolValueBytes;
  for (const { kind, toolName, toolCallId, value } of toolValues(prompt)) {
    remainingBytes -= jsonBytes(value, remainingBytes);
    if (remainingBytes < 0)
      throw new Problem(
        'too_large',
        'request_too_large',
        'The inputs of tool calls and the JSON results of tools may have at most 2 MiB together; ' +
          `the ${kind} of the call ${toolCallId} of the tool ${toolName} exceeds this limit. Shorten ` +
          'earlier inputs and results, or send results as text.',
        { param: memberNames?.prompt ?? 'prompt' },
      );
  }
}

interface ToolValue {
  kind: 'input' | 'result';
  toolName: string;
  toolCallId: string;
  value: unknown;
}

function* toolValues(prompt: Prompt): Generator<ToolValue> {
  for (const { content } of prompt) {
    if (typeof content === 'string') continue;
    for (const part of content) {
      if (part.type === 'tool-call') yield { ...part, kind: 'input', value: part.input };
      else if (
        part.type === 'tool-result' &&
        (part.output.type === 'json' || part.output.type === 'error-json')
      )
        yield { ...part, kind: 'result', value: part.output.value };
    }
  }
}

/** The size as JSON, or more than `limit` without serializing the value. */
function jsonBytes(value: unknown, limit: number): number {
  const approximateBytes = approximateJsonBytes(value, limit);
  return approximateBytes > limit
    ? approximateBytes
    : Buffer.byteLength((JSON.stringify(value) as string | undefined) ?? '');
}
