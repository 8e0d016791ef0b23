// `POST /v1/ai/text` to and from the hub: a prompt or a plain conversation in, one message out.
import type { GenerateTextRequest, TextMessage } from '../../contract/gateway/types.gen.ts';
import { sourceList, tokenCount, type Answer, type ModelCall, type Prompt, type Usage } from './model.ts';

/** The hub call that the request asks for. */
export function callOf(body: GenerateTextRequest, effort: string | undefined, signal: AbortSignal): ModelCall {
  return {
    prompt: promptOf(body),
    maxOutputTokens: body.max_output_tokens,
    temperature: body.temperature,
    stopSequences: body.stop,
    seed: body.seed,
    reasoningEffort: effort,
    signal,
  };
}

/** The answer as the message that the caller gets; sources stand as a list under the text. */
export function messageOf(answer: Answer, { id, modelId }: { id: string; modelId: string }): TextMessage {
  const parts: TextMessage['parts'] = [];
  for (const part of answer.content) {
    if ((part.type === 'text' || part.type === 'reasoning') && part.text !== '') parts.push({ type: part.type, text: part.text });
  }
  const list = sourceList(answer.content.filter((part) => part.type === 'source'));
  const last = parts.findLast((part) => part.type === 'text');
  if (list !== '' && last) last.text += list;
  const { unified } = answer.finishReason;
  return {
    id,
    role: 'assistant',
    parts,
    metadata: { model: modelId, finish_reason: unified === 'interrupted' ? 'error' : unified, usage: usageOf(answer.usage) },
  };
}

function promptOf(body: GenerateTextRequest): Prompt {
  const turns = body.messages ?? [{ role: 'user' as const, content: body.prompt ?? '' }];
  return [
    ...(body.system === undefined ? [] : [{ role: 'system' as const, content: body.system }]),
    ...turns.map(({ role, content }): Prompt[number] => ({ role, content: [{ type: 'text', text: content }] })),
  ];
}

// Kinds apart, as prices are: what the provider counts in a total and does not break down is plain input or output.
function usageOf({ inputTokens, outputTokens }: Usage): TextMessage['metadata']['usage'] {
  const cached = tokenCount(inputTokens.cacheRead) ?? 0;
  const written = tokenCount(inputTokens.cacheWrite) ?? 0;
  const reasoning = tokenCount(outputTokens.reasoning) ?? 0;
  return {
    input_tokens: tokenCount(inputTokens.noCache) ?? Math.max((tokenCount(inputTokens.total) ?? 0) - cached - written, 0),
    cached_input_tokens: cached,
    cache_write_tokens: written,
    output_tokens: tokenCount(outputTokens.text) ?? Math.max((tokenCount(outputTokens.total) ?? 0) - reasoning, 0),
    reasoning_tokens: reasoning,
  };
}
