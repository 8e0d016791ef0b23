// The members of a responses request: those that models of the hub support, hints that are dropped with a
// warning, and members that are rejected.
import type { ResponseRequest } from '../../../../contract/gateway/types.gen.ts';
import { asRecord } from '../../../../kernel/json-value.ts';
import { readList, readString } from '../translation/members.ts';
import type { DroppedHints } from '../translation/dropped-hints.ts';
import { unsupportedMember } from '../../hub/problems.ts';

/** Members that reach a model of the hub. */
export const supportedMembers: ReadonlySet<string> = new Set([
  'model',
  'input',
  'instructions',
  'stream',
  'max_output_tokens',
  'temperature',
  'top_p',
  'presence_penalty',
  'frequency_penalty',
  'tools',
  'tool_choice',
  'parallel_tool_calls',
  'text',
  'reasoning',
  'include',
]);

const label = 'labels are not sent to this model';

/** Members that do not affect the answer, each with the text of its warning. */
export const hintMembers: Readonly<Record<string, string>> = {
  metadata: label,
  client_metadata: label,
  user: label,
  safety_identifier: label,
  prompt_cache_key: 'this model caches by rules of its own',
  prompt_cache_retention: 'this model caches by rules of its own',
  stream_options: 'is not sent to this model',
  max_tool_calls: "limits the provider's own tools, and this model has none",
};

/** Values that request what the gateway does anyway, so they are accepted. */
export const usualValues: Readonly<Record<string, readonly unknown[]>> = {
  store: [false],
  background: [false],
  service_tier: ['auto', 'default'],
  truncation: ['disabled'],
  top_logprobs: [0],
};

/** Messages for rejected members that clients of this format use; other members share a general message. */
export const refusals: Readonly<Record<string, string>> = {
  prompt: 'Stored prompts are not supported by this model; send instructions and input.',
  service_tier: 'This model has no such tier; use auto or default.',
  truncation: 'The input of this model is never truncated; leave out truncation or send disabled.',
  top_logprobs: 'This model does not report log probabilities.',
};

/** Throws a 422 for the first member that the model does not support, and collects the hints. */
export function refuseUnsupported(body: ResponseRequest, hints: DroppedHints): void {
  for (const [name, value] of Object.entries(body) as [string, unknown][]) {
    if (value === undefined || value === null || supportedMembers.has(name)) continue;
    if (Object.hasOwn(usualValues, name) && usualValues[name]?.includes(value) === true) continue;
    const hint = Object.hasOwn(hintMembers, name) ? hintMembers[name] : undefined;
    if (hint === undefined) throw unsupportedMember(name, refusalOf(name));
    hints.add(name, hint);
  }
  readInclude(body['include'], hints);
  for (const name of Object.keys(asRecord(body.reasoning)))
    if (!reasoningMembers.has(name)) hints.add(`reasoning.${name}`, 'is not sent to this model');
  for (const [name, value] of Object.entries(asRecord(body['text'])))
    if (name !== 'format' && value !== null) hints.add(`text.${name}`, 'is not sent to this model');
}

const reasoningMembers = new Set(['effort', 'summary', 'generate_summary']);

function refusalOf(name: string): string {
  return (
    (Object.hasOwn(refusals, name) ? refusals[name] : undefined) ??
    `The member ${name} is not supported by this model.`
  );
}

// Encrypted reasoning is always included. Other values request details of tools that
// this model does not have.
function readInclude(include: unknown, hints: DroppedHints): void {
  if (include === undefined || include === null) return;
  for (const [index, item] of readList(include, 'include').entries()) {
    const name = readString(item, `include[${index}]`);
    if (name === 'message.output_text.logprobs')
      throw unsupportedMember(`include[${index}]`, 'This model does not report log probabilities.');
    if (name !== 'reasoning.encrypted_content') hints.add(`include[${index}]`, 'this model has no such tool');
  }
}
