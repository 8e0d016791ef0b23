// Converts a request of OpenAI's older completions format to a call of the hub, for models whose
// provider does not support the format. A member that the hub cannot express is rejected, never ignored.
import type { CompletionRequest } from '../../../../contract/gateway/types.gen.ts';
import type { ModelCall, Prompt, Warning } from '../../hub/language-model.ts';
import { labelMembers } from '../chat-completions/dropped-members.ts';
import { invalidMember } from '../translation/members.ts';
import { unsupportedMember } from '../../hub/problems.ts';

// Chat models have no member for the text after the cursor, so a system message describes the task.
// metering/measure.ts counts 512 bytes for it.
const fillInstruction =
  'You complete text at a cursor. Write the text that belongs between <prefix> and <suffix>. ' +
  'Answer with that text alone: no explanation, no Markdown, and nothing that <prefix> or <suffix> contains.';

/** Throws a 422 for `echo` on any model: the repeated prompt could make the output exceed the reservation. */
export function refuseEcho({ echo }: CompletionRequest): void {
  if (echo === true)
    throw unsupportedMember('echo', 'The member echo is not supported; put the prompt before the answer.');
}

/** Throws a 400 for an empty request and a 422 for a member that the model does not support. */
export function toModelCall(body: CompletionRequest, { signal }: { signal: AbortSignal }): ModelCall {
  refuseUnsupported(body);
  return {
    prompt: toPrompt(promptOf(body), body.suffix ?? ''),
    maxOutputTokens: body.max_tokens ?? undefined,
    temperature: body.temperature ?? undefined,
    topP: body.top_p ?? undefined,
    presencePenalty: body.presence_penalty ?? undefined,
    frequencyPenalty: body.frequency_penalty ?? undefined,
    seed: body.seed ?? undefined,
    stopSequences: typeof body.stop === 'string' ? [body.stop] : (body.stop ?? undefined),
    reasoningEffort: undefined,
    signal,
  };
}

/** A warning for each label of the call, which translation drops. */
export function droppedMemberWarnings(body: CompletionRequest): Warning[] {
  return Object.entries(body)
    .filter(([name, value]) => labelMembers.has(name) && value !== null)
    .map(([name]) => ({
      type: 'unsupported',
      feature: name,
      details: 'labels are not sent to this model',
    }));
}

// The contract allows a list of one prompt.
function promptOf({ prompt }: CompletionRequest): string {
  return typeof prompt === 'string' ? prompt : (prompt[0] ?? '');
}

function toPrompt(prefix: string, suffix: string): Prompt {
  if (prefix === '' && suffix === '')
    throw invalidMember('prompt', 'must not be empty when there is no suffix');
  const text = suffix === '' ? prefix : `<prefix>${prefix}</prefix>\n<suffix>${suffix}</suffix>`;
  return [
    ...(suffix === '' ? [] : [{ role: 'system' as const, content: fillInstruction }]),
    { role: 'user', content: [{ type: 'text', text }] },
  ];
}

// The members that reach a model of the hub or that the serializer of the answer reads. `n` is accepted as 1,
// and `echo` as false (`refuseEcho`).
const supportedMembers = new Set([
  'model',
  'prompt',
  'suffix',
  'stream',
  'stream_options',
  'n',
  'echo',
  'max_tokens',
  'temperature',
  'top_p',
  'presence_penalty',
  'frequency_penalty',
  'seed',
  'stop',
]);

function refuseUnsupported(body: CompletionRequest): void {
  if ((body.logprobs ?? null) !== null)
    throw unsupportedMember('logprobs', 'This model does not report log probabilities.');
  if ((body.n ?? 1) > 1)
    throw unsupportedMember('n', 'This model returns one completion per call; leave out n.');
  for (const [name, value] of Object.entries(body)) {
    if (supportedMembers.has(name) || labelMembers.has(name) || value === null || value === undefined)
      continue;
    throw unsupportedMember(name, `The member ${name} is not supported by this model.`);
  }
}
