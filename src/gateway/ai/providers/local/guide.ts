// `local/guide`: answers questions about this product with the best matching sections of its documentation
// and names them as sources. It is a search and not a language model, which each answer states.
import { setImmediate } from 'node:timers/promises';
import {
  collectAnswer,
  type LanguageModel,
  type ModelCall,
  type StreamPart,
} from '../../hub/language-model.ts';
import { buildGuideIndex, type GuideIndex, type SearchResult } from './guide-index.ts';
import { checkStopSequences, cutAtStops } from './stop-sequences.ts';
import { countTokens, promptTokens, splitWords, textOf } from './tokens.ts';

// A second section is quoted when its score is at least this share of the best score.
const minScoreShare = 0.6;
const maxSections = 2;
const maxSectionLength = 2_400;
// Pieces sent in one turn of the event loop.
const piecesPerTurn = 128;

export function guideModel({ directory }: { directory: string }): LanguageModel {
  let index: Promise<GuideIndex> | undefined;

  /** Builds the index at the first question; a failure is not cached, so that the next question retries. */
  function loadIndex(): Promise<GuideIndex> {
    index ??= buildGuideIndex(directory).catch((error: unknown) => {
      index = undefined;
      throw error;
    });
    return index;
  }

  async function* stream(call: ModelCall): AsyncGenerator<StreamPart> {
    const { stopSequences = [] } = call;
    checkStopSequences(stopSequences, 'local/guide');
    const guide = await loadIndex();
    call.signal.throwIfAborted();
    const question = call.prompt.findLast(({ role }) => role === 'user');
    const results = question === undefined ? [] : bestResults(guide.search(textOf(question)));
    yield { type: 'stream-start', warnings: [] };
    yield* sourceParts(results);
    const text = results.length === 0 ? noAnswer(guide.pages()) : quoteSections(results);
    yield* answerParts(cutAtStops(text, stopSequences), call);
  }

  return { stream, generate: (call) => collectAnswer(stream(call)) };
}

function bestResults(results: readonly SearchResult[]): SearchResult[] {
  const bestScore = results[0]?.score ?? 0;
  return results.slice(0, maxSections).filter(({ score }) => score >= bestScore * minScoreShare);
}

function* sourceParts(results: readonly SearchResult[]): Generator<StreamPart> {
  for (const [position, { section }] of results.entries()) {
    yield {
      type: 'source',
      sourceType: 'document',
      id: `source_${position + 1}`,
      mediaType: 'text/markdown',
      title: section.page === section.heading ? section.page : `${section.page}: ${section.heading}`,
      filename: section.file,
    };
  }
}

async function* answerParts(
  text: string,
  { prompt, maxOutputTokens }: ModelCall,
): AsyncGenerator<StreamPart> {
  const pieces = splitWords(text);
  const sentPieces = pieces.slice(0, maxOutputTokens ?? pieces.length);
  yield { type: 'text-start', id: 'text' };
  for (const [position, delta] of sentPieces.entries()) {
    yield { type: 'text-delta', id: 'text', delta };
    if (position % piecesPerTurn === piecesPerTurn - 1) await setImmediate();
  }
  yield { type: 'text-end', id: 'text' };
  const input = promptTokens(prompt);
  const output = countTokens(sentPieces.join(''));
  const reason = sentPieces.length < pieces.length ? 'length' : 'stop';
  yield {
    type: 'finish',
    finishReason: { unified: reason, raw: reason },
    usage: {
      inputTokens: { total: input, noCache: input, cacheRead: 0, cacheWrite: 0 },
      outputTokens: { total: output, text: output, reasoning: 0 },
    },
  };
}

function quoteSections(results: readonly SearchResult[]): string {
  const sections = results.map(
    ({ section: { heading, body } }) => `## ${heading}\n\n${withoutRelativeLinks(shorten(body))}`,
  );
  const note = 'From the documentation, found by search (no language model wrote this):';
  return [note, ...sections].join('\n\n');
}

/**
 * A long body is cut at the end of a line, or within a line that is itself too long. A code block that is cut
 * is closed.
 */
function shorten(body: string): string {
  if (body.length <= maxSectionLength) return body;
  const lineEnd = body.lastIndexOf('\n', maxSectionLength);
  const start = body.slice(0, lineEnd < 0 ? maxSectionLength : lineEnd).trimEnd();
  // A code block in a list is indented.
  const fences = start.match(/^ *```/gm) ?? [];
  return `${start}\n${fences.length % 2 === 1 ? `${fences.at(-1)}\n` : ''}…`;
}

// Outside the documentation, relative links to its pages, sections and pictures lead nowhere.
function withoutRelativeLinks(markdown: string): string {
  return markdown.replaceAll(/!?\[([^\]\n]+)\]\((?!https?:)[^()\s]+\)/g, '$1');
}

function noAnswer(pages: readonly string[]): string {
  if (pages.length === 0) return 'No documentation is installed here, so I have nothing to search.';
  const topics = pages.map((page) => `- ${page}`).join('\n');
  return `I searched the documentation and found nothing about this. Its topics are:\n\n${topics}`;
}
