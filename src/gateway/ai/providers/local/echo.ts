// `local/echo`: says back what the user said, word by word, the same for the same call. Lines of the prompt that
// begin with a directive make it do what a real model might: think, call a tool, run out of tokens, be slow, fail.
// It is for trying clients out; docs/guides/local-models.md is its description.
import { setImmediate } from 'node:timers/promises';
import type { Clock } from '../../../../kernel/clock.ts';
import { Problem } from '../../../../kernel/problem.ts';
import {
  collectAnswer,
  type LanguageModel,
  type ModelCall,
  type Prompt,
  type StreamPart,
  type Usage,
} from '../../hub/language-model.ts';
import { createBudget, minimalInstance } from './minimal-instance.ts';
import { cutAtStops, maximumStops } from './stop-sequences.ts';
import { countTokens, promptTokens, textOf, words } from './tokens.ts';

// Pieces between two turns of the event loop: the consumers of a piece run before the next one, so this many take about
// a millisecond.
const piecesAtOnce = 128;

interface Script {
  text: string;
  reasoning: string[];
  toolCalls: { toolName: string; input: string }[];
  cutShort: boolean;
  delayMs: number;
  fails: 'never' | 'at once' | { afterPieces: number };
}

export function echoModel({ clock }: { clock: Pick<Clock, 'sleep'> }): LanguageModel {
  const stream = (call: ModelCall) => echo(call, clock);
  return { stream, generate: (call) => collectAnswer(stream(call)) };
}

async function* echo(call: ModelCall, clock: Pick<Clock, 'sleep'>): AsyncGenerator<StreamPart> {
  const stops = call.stopSequences ?? [];
  if (stops.length > maximumStops)
    throw beyond(`The model local/echo takes ${maximumStops} stop sequences at most.`, 'stop');
  const script = scriptOf(call);
  if (script.fails === 'at once') throw failure();
  const answer = cutAtStops(answerText(call, script), stops);
  const budget = call.maxOutputTokens ?? Number.POSITIVE_INFINITY;
  const inputTokens = promptTokens(call.prompt);
  const sent = { pieces: 0, reasoning: 0, text: 0 };
  const usage = (): Usage => usageOf(inputTokens, sent.text, sent.reasoning);

  async function paced(): Promise<void> {
    call.signal.throwIfAborted();
    if (typeof script.fails === 'object' && sent.pieces >= script.fails.afterPieces) throw failure();
    if (script.delayMs > 0) await clock.sleep(script.delayMs, call.signal);
    else if (sent.pieces % piecesAtOnce === piecesAtOnce - 1) await setImmediate();
    sent.pieces += 1;
  }

  yield { type: 'stream-start', warnings: [] };
  let length = false;
  try {
    for (const [kind, text] of [
      ['reasoning', script.reasoning.join('\n')],
      ['text', answer],
    ] as const) {
      const pieces = words(text);
      if (pieces.length === 0 || length) continue;
      yield { type: `${kind}-start`, id: kind };
      for (const piece of pieces) {
        if (sent.pieces >= budget) {
          length = true;
          break;
        }
        await paced();
        sent[kind] += 1;
        yield { type: `${kind}-delta`, id: kind, delta: piece };
      }
      yield { type: `${kind}-end`, id: kind };
    }
    if (!length) {
      for (const [index, { toolName, input }] of script.toolCalls.entries()) {
        const id = `call_${index + 1}`;
        await paced();
        sent.text += countTokens(input);
        yield { type: 'tool-input-start', id, toolName };
        yield { type: 'tool-input-delta', id, delta: input };
        yield { type: 'tool-input-end', id };
        yield { type: 'tool-call', toolCallId: id, toolName, input };
      }
    }
    if (typeof script.fails === 'object') throw failure();
  } catch (error) {
    if (call.signal.aborted) throw error;
    yield { type: 'error', error };
    yield { type: 'finish', finishReason: { unified: 'error', raw: undefined }, usage: usage() };
    return;
  }
  const unified = length || script.cutShort ? 'length' : script.toolCalls.length > 0 ? 'tool-calls' : 'stop';
  yield { type: 'finish', finishReason: { unified, raw: unified }, usage: usage() };
}

function usageOf(input: number, text: number, reasoning: number): Usage {
  return {
    inputTokens: { total: input, noCache: input, cacheRead: 0, cacheWrite: 0 },
    outputTokens: { total: text + reasoning, text, reasoning },
  };
}

function beyond(message: string, param: string): Problem {
  return new Problem('impossible', 'unsupported_by_model', message, { param });
}

function failure(): Problem {
  return new Problem('upstream_failed', 'upstream_failed', 'The model failed, as it was told to.');
}

function answerText(call: ModelCall, script: Script): string {
  const last = call.prompt.at(-1);
  if (last?.role === 'tool') return textOf(last);
  if (script.toolCalls.length > 0) return script.text;
  const format = call.responseFormat;
  if (format?.type !== 'json') return script.text;
  return JSON.stringify(
    format.schema === undefined
      ? { text: script.text }
      : minimalInstance(format.schema, createBudget(call.memberNames?.responseSchema ?? 'response_format')),
  );
}

const directives = new Set(['reasoning', 'tool', 'length', 'delay', 'fail', 'fail-after']);
// Lines of one prompt that are obeyed.
const maximumDirectives = 1_000;

function scriptOf(call: ModelCall): Script {
  const script: Script = {
    text: '',
    reasoning: [],
    toolCalls: [],
    cutShort: false,
    delayMs: 0,
    fails: 'never',
  };
  // The turn after a tool's result answers with it; the directives of the turn before have been obeyed.
  if (call.prompt.at(-1)?.role === 'tool') return script;
  const lines: string[] = [];
  let count = 0;
  for (const line of lastUserText(call.prompt).split('\n')) {
    const directive = readDirective(line.trimEnd());
    if (directive === undefined) lines.push(line);
    else if (++count > maximumDirectives)
      throw beyond(
        `The model local/echo obeys ${maximumDirectives} directives at most.`,
        call.memberNames?.prompt ?? 'prompt',
      );
    else obey(script, directive);
  }
  script.text = lines.join('\n').trim();
  const forced = forcedTool(call);
  if (call.toolChoice?.type === 'none') script.toolCalls = [];
  else if (forced !== undefined && script.toolCalls.length === 0) script.toolCalls.push(forced);
  return script;
}

interface Directive {
  name: string;
  value: string;
}

function readDirective(line: string): Directive | undefined {
  if (!line.startsWith('@')) return undefined;
  const end = line.search(/[ \t]/);
  const name = line.slice(1, end === -1 ? undefined : end);
  return directives.has(name) ? { name, value: end === -1 ? '' : line.slice(end).trim() } : undefined;
}

function obey(script: Script, { name, value }: Directive): void {
  switch (name) {
    case 'reasoning':
      script.reasoning.push(value);
      break;
    case 'tool': {
      const end = value.search(/\s/);
      const input = end === -1 ? '' : value.slice(end).trim();
      script.toolCalls.push({
        toolName: end === -1 ? value : value.slice(0, end),
        input: input === '' ? '{}' : input,
      });
      break;
    }
    case 'length':
      script.cutShort = true;
      break;
    case 'delay':
      script.delayMs = Math.min(wholeNumber(value), 60_000);
      break;
    case 'fail':
      script.fails = 'at once';
      break;
    default:
      script.fails = { afterPieces: wholeNumber(value) };
  }
}

function wholeNumber(text: string): number {
  return /^\d{1,9}$/.test(text) ? Number(text) : 0;
}

// A call that insists on a tool gets one, with the least input that its schema allows.
function forcedTool({
  tools = [],
  toolChoice,
  memberNames,
}: ModelCall): { toolName: string; input: string } | undefined {
  if (toolChoice?.type !== 'required' && toolChoice?.type !== 'tool') return undefined;
  const index = tools.findIndex(
    (candidate) => toolChoice.type === 'required' || candidate.name === toolChoice.toolName,
  );
  const tool = tools[index];
  if (tool === undefined) return undefined;
  const param = `tools[${index}].${memberNames?.toolSchema ?? 'inputSchema'}`;
  const input = tool.type === 'function' ? minimalInstance(tool.inputSchema, createBudget(param)) : {};
  return { toolName: tool.name, input: JSON.stringify(input) };
}

function lastUserText(prompt: Prompt): string {
  const message = prompt.findLast((candidate) => candidate.role === 'user');
  return message === undefined ? '' : textOf(message);
}
