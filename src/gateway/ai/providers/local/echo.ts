// `local/echo`: repeats the last user message word by word, always in the same way for the same call.
// Directives in the prompt (echo-script.ts) script reasoning, tool calls, truncation, delays and
// failures, so that clients can be tested without a provider. docs/guides/local-models.md describes it.
import { setImmediate } from 'node:timers/promises';
import type { Clock } from '../../../../kernel/clock.ts';
import type { Problem } from '../../../../kernel/problem.ts';
import {
  collectAnswer,
  type LanguageModel,
  type ModelCall,
  type StreamPart,
  type Usage,
} from '../../hub/language-model.ts';
import { parseScript, type Script } from './echo-script.ts';
import { createBudget, minimalInstance } from './minimal-instance.ts';
import { checkStopSequences, cutAtStops } from './stop-sequences.ts';
import { countTokens, promptTokens, splitWords, textOf } from './tokens.ts';
import { upstreamFailed } from '../../hub/problems.ts';

// Pieces sent in one turn of the event loop. A piece and its consumers take 8 µs, so a turn takes about one
// millisecond.
const piecesPerTurn = 128;

export function echoModel({ clock }: { clock: Pick<Clock, 'sleep'> }): LanguageModel {
  const stream = (call: ModelCall) => echo(call, clock);
  return { stream, generate: (call) => collectAnswer(stream(call)) };
}

/** One answer while it is streamed. */
interface EchoState {
  call: ModelCall;
  script: Script;
  clock: Pick<Clock, 'sleep'>;
  inputTokens: number;
  /** Pieces and tokens sent so far. */
  pieces: number;
  reasoningTokens: number;
  textTokens: number;
  /** Whether the output limit of the call has cut the answer. */
  isCut: boolean;
}

async function* echo(call: ModelCall, clock: Pick<Clock, 'sleep'>): AsyncGenerator<StreamPart> {
  const stopSequences = call.stopSequences ?? [];
  checkStopSequences(stopSequences, 'local/echo');
  const script = parseScript(call);
  if (script.failure?.after === 'start') throw modelFailure();
  const answer = cutAtStops(answerText(call, script), stopSequences);
  const state: EchoState = {
    call,
    script,
    clock,
    inputTokens: promptTokens(call.prompt),
    pieces: 0,
    reasoningTokens: 0,
    textTokens: 0,
    isCut: false,
  };
  yield { type: 'stream-start', warnings: [] };
  try {
    yield* streamText(state, 'reasoning', script.reasoning.join('\n'));
    yield* streamText(state, 'text', answer);
    yield* streamToolCalls(state);
    // An answer with fewer pieces than `@fail-after` names fails at its end.
    if (script.failure !== undefined) throw modelFailure();
  } catch (error) {
    if (call.signal.aborted) throw error;
    yield { type: 'error', error };
    yield { type: 'finish', finishReason: { unified: 'error', raw: undefined }, usage: usageOf(state) };
    return;
  }
  const reason = finishReason(state);
  yield { type: 'finish', finishReason: { unified: reason, raw: reason }, usage: usageOf(state) };
}

async function* streamText(
  state: EchoState,
  kind: 'reasoning' | 'text',
  text: string,
): AsyncGenerator<StreamPart> {
  const pieces = splitWords(text);
  if (pieces.length === 0 || state.isCut) return;
  const maxPieces = state.call.maxOutputTokens ?? Number.POSITIVE_INFINITY;
  yield { type: `${kind}-start`, id: kind };
  for (const delta of pieces) {
    if (state.pieces >= maxPieces) {
      state.isCut = true;
      break;
    }
    await waitForPiece(state);
    state[kind === 'text' ? 'textTokens' : 'reasoningTokens'] += 1;
    yield { type: `${kind}-delta`, id: kind, delta };
  }
  yield { type: `${kind}-end`, id: kind };
}

async function* streamToolCalls(state: EchoState): AsyncGenerator<StreamPart> {
  if (state.isCut) return;
  for (const [index, { toolName, input }] of state.script.toolCalls.entries()) {
    const id = `call_${index + 1}`;
    await waitForPiece(state);
    state.textTokens += countTokens(input);
    yield { type: 'tool-input-start', id, toolName };
    yield { type: 'tool-input-delta', id, delta: input };
    yield { type: 'tool-input-end', id };
    yield { type: 'tool-call', toolCallId: id, toolName, input };
  }
}

/** Waits for the scripted delay; throws when the call is aborted or the script fails at this piece. */
async function waitForPiece(state: EchoState): Promise<void> {
  const { call, script, clock } = state;
  call.signal.throwIfAborted();
  const failureAt = script.failure?.after;
  if (typeof failureAt === 'number' && state.pieces >= failureAt) throw modelFailure();
  if (script.delayMs > 0) await clock.sleep(script.delayMs, call.signal);
  else if (state.pieces % piecesPerTurn === piecesPerTurn - 1) await setImmediate();
  state.pieces += 1;
}

function finishReason({ isCut, script }: EchoState): 'length' | 'tool-calls' | 'stop' {
  if (isCut || script.isCutShort) return 'length';
  return script.toolCalls.length > 0 ? 'tool-calls' : 'stop';
}

function usageOf({ inputTokens: input, textTokens: text, reasoningTokens: reasoning }: EchoState): Usage {
  return {
    inputTokens: { total: input, noCache: input, cacheRead: 0, cacheWrite: 0 },
    outputTokens: { total: text + reasoning, text, reasoning },
  };
}

function modelFailure(): Problem {
  return upstreamFailed('The model failed because of an @fail directive.');
}

/** The text of the script, a tool's result, or the smallest JSON of the response schema. */
function answerText(call: ModelCall, script: Script): string {
  const lastMessage = call.prompt.at(-1);
  if (lastMessage?.role === 'tool') return textOf(lastMessage);
  const format = call.responseFormat;
  if (script.toolCalls.length > 0 || format?.type !== 'json') return script.text;
  if (format.schema === undefined) return JSON.stringify({ text: script.text });
  const param = call.memberNames?.responseSchema ?? 'response_format';
  return JSON.stringify(minimalInstance(format.schema, createBudget(param)));
}
