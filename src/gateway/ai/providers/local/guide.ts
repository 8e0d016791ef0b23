// `local/guide`: answers questions about this product with the sections of its own documentation that fit best, and
// names them as sources. It searches and quotes; it is no language model, and says so in each answer.
import { setImmediate } from 'node:timers/promises';
import {
  collectAnswer,
  type LanguageModel,
  type ModelCall,
  type StreamPart,
} from '../../hub/language-model.ts';
import { buildGuideIndex, type Found, type GuideIndex } from './guide-index.ts';
import { countTokens, promptTokens, textOf, words } from './tokens.ts';

// A second section is shown when it fits nearly as well as the best.
const closeEnough = 0.6;
const mostSections = 2;
const longestSection = 2_400;
const piecesAtOnce = 128;

export function guideModel({ directory }: { directory: string }): LanguageModel {
  let index: Promise<GuideIndex> | undefined;

  // Built at the first question and kept; a failure is not kept, so that the next question tries again.
  function opened(): Promise<GuideIndex> {
    index ??= buildGuideIndex(directory).catch((error: unknown) => {
      index = undefined;
      throw error;
    });
    return index;
  }

  async function* stream(call: ModelCall): AsyncGenerator<StreamPart> {
    const guide = await opened();
    call.signal.throwIfAborted();
    const message = call.prompt.findLast((candidate) => candidate.role === 'user');
    const found = message === undefined ? [] : best(guide.search(textOf(message)));
    yield { type: 'stream-start', warnings: [] };
    for (const [position, { section }] of found.entries()) {
      const title = section.page === section.heading ? section.page : `${section.page}: ${section.heading}`;
      yield {
        type: 'source',
        sourceType: 'document',
        id: `source_${position + 1}`,
        mediaType: 'text/markdown',
        title,
        filename: section.file,
      };
    }
    const pieces = words(found.length === 0 ? ignorance(guide.pages()) : answer(found));
    const shown = pieces.slice(0, call.maxOutputTokens ?? pieces.length);
    yield { type: 'text-start', id: 'text' };
    for (const [position, delta] of shown.entries()) {
      yield { type: 'text-delta', id: 'text', delta };
      // Other calls get their turn between two runs of pieces.
      if (position % piecesAtOnce === piecesAtOnce - 1) await setImmediate();
    }
    yield { type: 'text-end', id: 'text' };
    const input = promptTokens(call.prompt);
    const output = countTokens(shown.join(''));
    const unified = shown.length < pieces.length ? 'length' : 'stop';
    yield {
      type: 'finish',
      finishReason: { unified, raw: unified },
      usage: {
        inputTokens: { total: input, noCache: input, cacheRead: 0, cacheWrite: 0 },
        outputTokens: { total: output, text: output, reasoning: 0 },
      },
    };
  }

  return { stream, generate: (call) => collectAnswer(stream(call)) };
}

function best(found: readonly Found[]): Found[] {
  const top = found[0]?.score ?? 0;
  return found.slice(0, mostSections).filter(({ score }) => score >= top * closeEnough);
}

function answer(found: readonly Found[]): string {
  const sections = found.map(({ section }) => {
    const cut =
      section.body.length > longestSection
        ? `${section.body.slice(0, section.body.lastIndexOf('\n', longestSection)).trimEnd()}\n…`
        : section.body;
    return `## ${section.heading}\n\n${cut}`;
  });
  return `From the documentation, found by search (no language model wrote this):\n\n${sections.join('\n\n')}`;
}

function ignorance(pages: readonly string[]): string {
  if (pages.length === 0) return 'No documentation is installed here, so I have nothing to search.';
  return `The documentation says nothing about this that I could find by search. Its topics are:\n\n${pages.map((page) => `- ${page}`).join('\n')}`;
}
