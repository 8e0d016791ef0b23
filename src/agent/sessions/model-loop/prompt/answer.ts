// Renders an assistant's message for a model: a pure function of its parts, so a message is
// sent with the same bytes while it grows, after its run, after a restart and in a fork.
import { createHash } from 'node:crypto';
import type { LanguageModelV3Message } from '@ai-sdk/provider';
import type { UiMessagePart } from '../../../../contract/agent/types.gen.ts';
import { asText } from '../../event-log/events.ts';
import { canonicalJson } from './canonical.ts';
import { clipText, shareTokens } from './clip.ts';
import { estimateJson } from './estimate.ts';

type ToolPart = Extract<UiMessagePart, { type: 'dynamic-tool' }>;
type AssistantPart = Extract<LanguageModelV3Message, { role: 'assistant' }>['content'][number];
type ResultPart = Extract<
  Extract<LanguageModelV3Message, { role: 'tool' }>['content'][number],
  { type: 'tool-result' }
>;
type Output = ResultPart['output'];
type Metadata = Readonly<Record<string, unknown>> | undefined;

export interface AnswerView {
  /**
   * Whether the called model wrote the message; a model may refuse the reasoning and
   * signatures of another one.
   */
  isOwn: boolean;
  /** The number of first steps that a summary replaces. */
  skippedSteps: number;
  /** Large outputs up to this seq are replaced by notes. */
  prunedUpToSeq: number;
  /** Tokens allowed for the outputs of one step together. */
  maxTextTokens: number;
}

/** Outputs of fewer characters are never pruned. */
export const minPrunedCharacters = 1_000;
// Of a longer output the model gets the beginning and the end, and reads more of it if it has to: the whole
// output would be paid for again in every later step.
const maxOutputTokens = 12_000;
// Errors are clipped early, because they are never pruned and may quote a name of several megabytes.
const maxErrorTokens = 2_000;

// This note stays in later prompts, because providers cache prompts by their prefix. The brackets keep the
// model from mistaking it for words of the person.
const continuation =
  '[A note from the agent, not from the person: your answer above was cut off, because the ' +
  'connection broke. Continue it exactly where it stops, and do not repeat any of it.]';

export function renderAnswer(parts: readonly UiMessagePart[], view: AnswerView): LanguageModelV3Message[] {
  const steps = splitSteps(parts).slice(view.skippedSteps);
  return steps.flatMap((step, index) => renderStep(step, view, index < steps.length - 1));
}

/** The parts of each step. Parts before the first `step-start` are a step too. */
export function splitSteps(parts: readonly UiMessagePart[]): UiMessagePart[][] {
  const steps: UiMessagePart[][] = [];
  for (const part of parts) {
    if (part.type === 'step-start') steps.push([]);
    else if (steps.length === 0) steps.push([part]);
    else steps.at(-1)?.push(part);
  }
  return steps;
}

function renderStep(
  step: readonly UiMessagePart[],
  view: AnswerView,
  isFollowed: boolean,
): LanguageModelV3Message[] {
  const content = step.flatMap((part) => renderPart(part, view.isOwn));
  // Some providers refuse a message that has only reasoning.
  if (!content.some(({ type }) => type !== 'reasoning')) return [];
  const tools = step.filter((part) => part.type === 'dynamic-tool');
  const messages: LanguageModelV3Message[] = [{ role: 'assistant', content }];
  if (tools.length > 0) messages.push({ role: 'tool', content: renderResults(tools, view) });
  else if (isFollowed && isCutOff(step))
    messages.push({ role: 'user', content: [{ type: 'text', text: continuation }] });
  return messages;
}

/** Whether the stream of the step broke within its text. */
export function isCutOff(step: readonly UiMessagePart[]): boolean {
  return step.some((part) => part.type === 'text' && part.state === 'streaming' && part.text !== '');
}

function renderPart(part: UiMessagePart, isOwn: boolean): AssistantPart[] {
  switch (part.type) {
    case 'text':
      // Anthropic refuses blank text. Text with metadata may carry a signature that a provider expects.
      return part.text.trim() === '' && (part.text === '' || part.providerMetadata === undefined)
        ? []
        : [{ type: 'text', text: asText(part.text), ...optionsOf(part.providerMetadata, isOwn) }];
    case 'reasoning':
      // Reasoning that was cut off has no signature.
      return isOwn && part.state !== 'streaming'
        ? [{ type: 'reasoning', text: asText(part.text), ...optionsOf(part.providerMetadata, isOwn) }]
        : [];
    case 'dynamic-tool':
      return [
        {
          type: 'tool-call',
          toolCallId: acceptedName(part.toolCallId),
          toolName: acceptedName(part.toolName),
          input: inputOf(part.input),
          ...optionsOf(part.callProviderMetadata, isOwn),
        },
      ];
    default:
      return [];
  }
}

// Providers refuse a whole conversation because of one id or name that does not match their format. A model
// may write any name, and one provider's ids may contain characters that another provider does not accept.
function acceptedName(name: string): string {
  if (/^[A-Za-z0-9_-]{1,64}$/.test(name)) return name;
  const digest = createHash('sha256').update(name).digest('hex').slice(0, 12);
  return `${name.replaceAll(/[^A-Za-z0-9_-]/g, '_').slice(0, 50)}_${digest}`;
}

function optionsOf(metadata: Metadata, isOwn: boolean): { providerOptions?: never } {
  if (!isOwn || metadata === undefined) return {};
  return { providerOptions: canonicalJson(metadata) as never };
}

// Providers accept objects only. Any other value is input that was not JSON, which the tool has refused.
function inputOf(input: unknown): unknown {
  const isObject = typeof input === 'object' && input !== null && !Array.isArray(input);
  return canonicalJson(isObject ? input : { input: input ?? null });
}

function renderResults(tools: readonly ToolPart[], view: AnswerView): ResultPart[] {
  const sizes = tools.map((part) => (isPruned(part, view.prunedUpToSeq) ? 0 : estimateJson(part.output)));
  const maxTokens = shareTokens(sizes, view.maxTextTokens);
  return tools.map((part) => ({
    type: 'tool-result',
    toolCallId: acceptedName(part.toolCallId),
    toolName: acceptedName(part.toolName),
    output: renderOutput(part, view.prunedUpToSeq, maxTokens),
  }));
}

function renderOutput(part: ToolPart, prunedUpToSeq: number, shareOfTokens: number): Output {
  if (part.state !== 'output-available')
    return { type: 'error-text', value: clipText(errorOf(part), maxErrorTokens).text };
  const { output, outputSeq } = part;
  if (isPruned(part, prunedUpToSeq)) return { type: 'text', value: pruneNote(output, outputSeq as number) };
  const value = canonicalJson(output ?? null);
  // Without a seq the model could not read the rest.
  const maxTokens = outputSeq === undefined ? shareOfTokens : Math.min(shareOfTokens, maxOutputTokens);
  const cutNote = outputSeq === undefined ? '.' : `. Read them with context_read and "seq": ${outputSeq}.`;
  if (typeof value === 'string') return { type: 'text', value: clipText(value, maxTokens, cutNote).text };
  if (estimateJson(value) <= maxTokens) return { type: 'json', value: value as never };
  return { type: 'text', value: clipText(JSON.stringify(value), maxTokens, cutNote).text };
}

/** The text that the model gets for a call without an output. */
export function errorOf({ errorText, approval }: ToolPart): string {
  return asText(errorText ?? approval?.reason ?? 'The call has not ended.');
}

function pruneNote(output: unknown, seq: number): string {
  const count = lengthOf(output);
  return (
    `[${count} characters of output were removed from here to save space. ` +
    `Read them again with context_read and "seq": ${seq}.]`
  );
}

/**
 * Whether the output of the call is replaced by a note. Only an output whose seq is known can be read again.
 */
export function isPruned(part: ToolPart, prunedUpToSeq: number): boolean {
  return isPrunable(part) && (part.outputSeq as number) <= prunedUpToSeq;
}

export function isPrunable(part: ToolPart): boolean {
  return (
    part.state === 'output-available' &&
    part.outputSeq !== undefined &&
    lengthOf(part.output) >= minPrunedCharacters
  );
}

function lengthOf(output: unknown): number {
  return typeof output === 'string' ? output.length : (JSON.stringify(output) ?? '').length;
}
