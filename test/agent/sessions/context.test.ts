// The prompt of a long session: old tool outputs become notes, earlier messages become a summary, and the
// model gets no input that it does not accept.
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import {
  hasType,
  type AgentClient,
  type PartsPrompt,
  type Run,
  type SessionEvent,
  type TextPrompt,
} from '@townhall/agent';
import { definePlugin, type Plugin } from '../../../src/agent/plugins/index.ts';
import { fileTokens, pictureSize } from '../../../src/agent/sessions/model-loop/prompt/media-tokens.ts';
import {
  calls,
  finish,
  promptBytes,
  says,
  toolResults,
  type ScriptedAnswer,
  type StreamRequest,
} from '../../support/scripted-gateway.ts';
import { collect, openWorld, type World } from '../../support/session-world.ts';

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterEach(() => world.reset());
afterAll(() => world.close());

const wait = { headers: { prefer: 'wait=60' } };
const model = 'local/echo';

const reader = definePlugin({
  name: 'pages',
  title: 'Pages',
  description: 'Reads pages.',
  actions: {
    read: {
      description: 'Reads a page.',
      input: { type: 'object', additionalProperties: true },
      run: async (input) => pageOf((input as { page: number }).page, (input as { length?: number }).length),
    },
  },
});

function pageOf(page: number, length = 3_000): string {
  const start = `Page ${page}. `;
  const end = ` End of page ${page}.`;
  return start + `word${page} `.repeat(length / 6).slice(0, length - start.length - end.length) + end;
}

const isSummaryRequest = ({ prompt }: StreamRequest): boolean =>
  /Sum up the conversation/.test(JSON.stringify(prompt.at(-1)));

/** Reads one page per step, and answers requests for summaries. */
function readPages(count: number, length?: number): (request: StreamRequest) => ScriptedAnswer {
  let page = 0;
  return (request) => {
    if (isSummaryRequest(request)) return says(`Summary at page ${page}.`);
    page += 1;
    return page <= count
      ? calls({ name: 'pages_read', input: { page, ...(length ? { length } : {}) }, id: `call_${page}` })
      : says('Read them all.');
  };
}

/** A client of a new agent with a session `s`. */
async function startSession(plugins: readonly Plugin[] = []): Promise<AgentClient> {
  const { client } = await world.start({ createOptions: { plugins } });
  await client.sessions.create({ id: 's' });
  return client;
}

/** Prompts the session `s` and returns the run after its end. */
async function runPrompt(client: AgentClient, input: TextPrompt | PartsPrompt): Promise<Run> {
  const { runId } = await client.sessions.prompt({ sessionId: 's', ...input }, wait);
  return client.sessions.getRun({ sessionId: 's', runId });
}

/** The prompt of the last request, and the start of another run's prompt in the same length. */
async function promptAndNextStart(client: AgentClient): Promise<{ prompt: string[]; nextStart: string[] }> {
  const prompt = promptBytes(world.gateway.bodies.at(-1) as string);
  await runPrompt(client, { text: 'And?' });
  const nextStart = promptBytes(world.gateway.bodies.at(-1) as string).slice(0, prompt.length);
  return { prompt, nextStart };
}

const eventsOf = (client: AgentClient): Promise<SessionEvent[]> =>
  collect(client.sessions.follow({ sessionId: 's', until: 'idle' }));

const tooLong: ScriptedAnswer = {
  status: 400,
  error: { code: 'upstream_refused', message: 'prompt is too long' },
};

describe('a long output of a tool', () => {
  test('is shown by its beginning and end, and can be read in parts', async () => {
    const length = 120_000;
    let step = 0;
    world.gateway.answer((request) => {
      step += 1;
      if (step === 1) return calls({ name: 'pages_read', input: { page: 1, length }, id: 'long' });
      if (step > 2) return says('Read it.');
      const seq = Number(
        /context_read and \\*"seq\\*": (\d+)/.exec(JSON.stringify(toolResults(request)))?.[1],
      );
      return calls({ name: 'context_read', input: { seq, offset: 60_000, length: 100 }, id: 'middle' });
    });
    const client = await startSession([reader]);
    await runPrompt(client, { text: 'Read.' });
    const prompt = JSON.stringify(toolResults(world.gateway.requests[1] as StreamRequest));
    for (const words of ['Page 1.', 'End of page 1.']) expect(prompt).toContain(words);
    expect(prompt).toMatch(/\d+ characters are left out here\. Read them with context_read/);
    // An output may have 12,000 tokens, about 48,000 characters.
    expect(prompt.length).toBeLessThan(60_000);
    const events = await eventsOf(client);
    const outputOf = (toolCallId: string) =>
      events.find((event) => event.type === 'tool.output' && event.toolCallId === toolCallId);
    expect(outputOf('long')).toMatchObject({ output: pageOf(1, length) });
    expect(outputOf('middle')).toMatchObject({
      output: { text: pageOf(1, length).slice(60_000, 60_100), totalCharacters: length, nextOffset: 60_100 },
    });
  });
});

describe('old outputs of tools', () => {
  test('become notes whose output the model can read', async () => {
    world.gateway.catalog([{ id: model, context_window: 16_000 }]);
    const pages = readPages(20);
    let hasReadNote = false;
    world.gateway.answer((request) => {
      const seqInNote = /"seq\\?": (\d+)/.exec(JSON.stringify(toolResults(request)[0]))?.[1];
      if (seqInNote === undefined || hasReadNote) return pages(request);
      hasReadNote = true;
      return calls({ name: 'context_read', input: { seq: Number(seqInNote) }, id: 'again' });
    });
    const client = await startSession([reader]);
    expect(await runPrompt(client, { text: 'Read.' })).toMatchObject({ status: 'completed' });
    const events = await eventsOf(client);
    const prunings = events.filter(hasType('context.pruned'));
    expect(prunings.length).toBeGreaterThan(0);
    expect(prunings[0]).toMatchObject({ minCharacters: 1_000 });
    const secondOutput = events.findLast(
      (event) => event.type === 'tool.output' && event.toolCallId === 'again',
    );
    expect(secondOutput).toMatchObject({
      output: { text: pageOf(1), totalCharacters: 3_000, nextOffset: null },
    });
    // The log and the message have the outputs.
    const { items } = await client.sessions.listMessages({ sessionId: 's' });
    expect(JSON.stringify(items)).toContain(pageOf(1));
    for (const request of world.gateway.requests)
      expect(JSON.stringify(request.prompt).length / 4).toBeLessThan(16_000);
  });

  test('stay notes in the next run', async () => {
    world.gateway.catalog([{ id: model, context_window: 16_000 }]);
    world.gateway.answer(readPages(20));
    const client = await startSession([reader]);
    await runPrompt(client, { text: 'Read.' });
    const { prompt, nextStart } = await promptAndNextStart(client);
    expect(prompt.join('\n')).toContain('characters of output were removed from here');
    expect(nextStart).toEqual(prompt);
  });
});

describe('a run of many steps', () => {
  // Outputs below the limit of pruning, so that only a summary helps.
  const shortLength = 900;

  test('summarizes the steps between its input and the last ones', async () => {
    world.gateway.catalog([{ id: model, context_window: 12_000 }]);
    world.gateway.answer(readPages(50, shortLength));
    const client = await startSession([reader]);
    await runPrompt(client, { text: 'Read all pages.' });
    const events = await eventsOf(client);
    const compactions = events.filter(hasType('compaction.ended'));
    expect(compactions.length).toBeGreaterThan(0);
    expect(compactions[0]).toMatchObject({
      outcome: 'completed',
      cut: { steps: expect.any(Number) as number },
    });
    const lastPrompt = JSON.stringify(world.gateway.requests.at(-1)?.prompt);
    expect(lastPrompt).toContain('Summary at page');
    expect(lastPrompt).toContain('Read all pages.');
    expect(lastPrompt).toContain('Page 50.');
    expect(lastPrompt).not.toContain('Page 1.');
    const { items } = await client.sessions.listMessages({ sessionId: 's' });
    expect(items[1]?.parts.filter(({ type }) => type === 'dynamic-tool')).toHaveLength(50);
  });

  test('keeps its summary in the prompt of the next run', async () => {
    world.gateway.catalog([{ id: model, context_window: 12_000 }]);
    world.gateway.answer(readPages(50, shortLength));
    const client = await startSession([reader]);
    await runPrompt(client, { text: 'Read all pages.' });
    const { prompt, nextStart } = await promptAndNextStart(client);
    expect(prompt.join('\n')).toContain('Summary at page');
    expect(nextStart).toEqual(prompt);
  });

  test('shortens its prompt after a length error without a known window', async () => {
    const pages = readPages(30, shortLength);
    world.gateway.answer((request) =>
      JSON.stringify(request.prompt).length > 30_000
        ? {
            status: 400,
            error: {
              code: 'upstream_refused',
              message: "This model's maximum context length is 8192 tokens; your messages have more.",
            },
          }
        : pages(request),
    );
    const client = await startSession([reader]);
    expect(await runPrompt(client, { text: 'Read all pages.' })).toMatchObject({
      status: 'completed',
      text: 'Read them all.',
    });
  });
});

describe('a prompt filled by the definitions of tools', () => {
  const wordyPlugin = definePlugin({
    name: 'wordy',
    title: 'Wordy',
    description: 'Many words.',
    actions: {
      act: {
        description: 'word '.repeat(7_000),
        input: { type: 'object', additionalProperties: true },
        run: async () => null,
      },
    },
  });

  test('is summarized only where that frees a tenth of the window', async () => {
    world.gateway.catalog([{ id: model, context_window: 14_000 }]);
    world.gateway.answer(readPages(30, 900));
    const client = await startSession([reader, wordyPlugin]);
    expect(await runPrompt(client, { text: 'Read all pages.' })).toMatchObject({ status: 'completed' });
    // The 30 pages have about 7,500 tokens, and each summary frees at least 1,400 of them. Otherwise each of the
    // 30 steps would request a summary.
    expect(world.gateway.requests.filter(isSummaryRequest).length).toBeLessThanOrEqual(8);
  });

  test('ends the run with an error that says what fills the window', async () => {
    world.gateway.catalog([{ id: model, context_window: 14_000 }]);
    world.gateway.answer(() => tooLong);
    const client = await startSession([reader, wordyPlugin]);
    const { runId } = await client.sessions.prompt({ sessionId: 's', text: 'Read.' });
    await eventsOf(client);
    expect(await client.sessions.getRun({ sessionId: 's', runId })).toMatchObject({
      status: 'failed',
      error: {
        code: 'upstream_refused',
        message: expect.stringMatching(
          /local\/echo is too long.*definitions of the tools have about \d+ tokens.*prompt is too long/,
        ) as string,
      },
    });
    expect(world.gateway.requests.filter(isSummaryRequest)).toEqual([]);
  });
});

test('a length error removes no output that the model has not read', async () => {
  const pages = readPages(1, 120_000);
  world.gateway.answer((request) =>
    JSON.stringify(request.prompt).length > 100_000 ? tooLong : pages(request),
  );
  const client = await startSession([reader]);
  expect(await runPrompt(client, { text: 'Read.' })).toMatchObject({ status: 'completed' });
  expect(JSON.stringify(toolResults(world.gateway.requests.at(-1) as StreamRequest))).toContain('Page 1.');
});

describe('a summary', () => {
  test('is created in pieces for a model with a smaller window', async () => {
    world.gateway.catalog([
      { id: 'acme/large', context_window: 1_000_000 },
      { id: 'acme/small', context_window: 8_000 },
    ]);
    world.gateway.answer((request) => says(isSummaryRequest(request) ? 'They read a book.' : 'Read.'));
    const client = await startSession();
    for (let chapter = 1; chapter <= 4; chapter += 1)
      await runPrompt(client, { text: pageOf(chapter, 20_000), model: 'acme/large' });
    world.gateway.requests.splice(0);
    await runPrompt(client, { text: 'And?', model: 'acme/small' });
    const summaries = world.gateway.requests.filter(isSummaryRequest);
    expect(summaries.length).toBeGreaterThan(1);
    for (const { prompt } of summaries) expect(JSON.stringify(prompt).length / 4).toBeLessThan(8_000);
    expect(JSON.stringify(world.gateway.requests.at(-1)?.prompt)).toContain('They read a book.');
  });

  test('is requested in smaller pieces after a length error', async () => {
    world.gateway.answer((request) => {
      if (!isSummaryRequest(request)) return says('Read.');
      return JSON.stringify(request.prompt).length > 30_000 ? tooLong : says('They read a book.');
    });
    const client = await startSession();
    for (let chapter = 1; chapter <= 4; chapter += 1)
      await runPrompt(client, { text: pageOf(chapter, 20_000) });
    const { runId } = await client.sessions.compact({ sessionId: 's' });
    const events = await eventsOf(client);
    expect(await client.sessions.getRun({ sessionId: 's', runId })).toMatchObject({ status: 'completed' });
    expect(events.find(hasType('compaction.ended'))).toMatchObject({ summary: 'They read a book.' });
  });

  test('is not requested by other sessions after a refusal of a file', async () => {
    world.gateway.catalog([{ id: model, context_window: 200_000 }]);
    world.gateway.answer((request) =>
      JSON.stringify(request.prompt).includes('"type":"file"')
        ? {
            status: 400,
            error: { code: 'upstream_refused', message: 'image dimensions exceed max allowed size' },
          }
        : says('Read.'),
    );
    const { client } = await world.start();
    await client.sessions.create({ id: 'pictures' });
    await client.sessions.prompt(
      { sessionId: 'pictures', parts: [{ type: 'text', text: 'Look.' }, picture()] },
      wait,
    );
    await client.sessions.create({ id: 's' });
    for (let chapter = 1; chapter <= 3; chapter += 1)
      await runPrompt(client, { text: pageOf(chapter, 20_000) });
    expect((await eventsOf(client)).some(hasType('compaction.started'))).toBe(false);
  });

  test('is a clipped transcript when the model refuses to write one', async () => {
    world.gateway.catalog([{ id: model, context_window: 16_000 }]);
    world.gateway.answer((request) => {
      if (!isSummaryRequest(request)) return says('Read.');
      return { status: 400, error: { code: 'upstream_refused', message: 'I would rather not.' } };
    });
    const client = await startSession();
    for (let chapter = 1; chapter <= 4; chapter += 1) {
      expect(await runPrompt(client, { text: pageOf(chapter, 20_000) })).toMatchObject({
        status: 'completed',
      });
    }
    const compaction = (await eventsOf(client)).find(hasType('compaction.ended'));
    expect(compaction?.summary).toContain('Page 1.');
  });

  test('contains no file', async () => {
    world.gateway.answer((request) => says(isSummaryRequest(request) ? 'A picture.' : 'Seen.'));
    const client = await startSession();
    await runPrompt(client, { parts: [{ type: 'text', text: 'Look.' }, picture()] });
    await client.sessions.compact({ sessionId: 's' });
    await eventsOf(client);
    const request = world.gateway.requests.find(isSummaryRequest);
    expect(JSON.stringify(request?.prompt)).toContain('photo.png');
    expect(JSON.stringify(request?.prompt)).not.toContain('"file"');
  });
});

/** The header of a PNG, followed by this many bytes. */
function png(width: number, height: number, bytes = 0): string {
  const header = Buffer.alloc(24);
  header.write('\x89PNG\r\n\x1a\n', 'latin1');
  header.write('IHDR', 12, 'latin1');
  header.writeUInt32BE(width, 16);
  header.writeUInt32BE(height, 20);
  return Buffer.concat([header, Buffer.alloc(bytes)]).toString('base64');
}

function picture(bytes = 0) {
  return {
    type: 'file' as const,
    mediaType: 'image/png',
    filename: 'photo.png',
    url: `data:image/png;base64,${png(800, 600, bytes)}`,
  };
}

describe('a picture', () => {
  test('counts by its pixels and not by its bytes', () => {
    expect(pictureSize(png(800, 600))).toEqual({ width: 800, height: 600 });
    // 750 pixels count as a token.
    expect(fileTokens('image/png', png(800, 600, 3_000_000))).toBe((800 * 600) / 750);
  });

  test('counts at most 1,600 tokens', () => {
    expect(fileTokens('image/png', png(8_000, 6_000))).toBeLessThanOrEqual(1_600);
  });

  test('causes no compaction by its bytes', async () => {
    world.gateway.catalog([{ id: model, context_window: 16_000 }]);
    world.gateway.answer(() => says('Seen.'));
    const client = await startSession();
    for (let index = 0; index < 3; index += 1)
      await runPrompt(client, { parts: [{ type: 'text', text: 'Look.' }, picture(1_000_000)] });
    expect((await eventsOf(client)).some(({ type }) => type === 'compaction.started')).toBe(false);
    const { contextWindow } = await client.sessions.getSystem({ sessionId: 's' });
    expect(contextWindow.used).toBeLessThan(10_000);
  });

  test('is left out only for a text-only model', async () => {
    world.gateway.catalog([
      { id: 'acme/text', context_window: 64_000, inputs: ['text'] },
      { id: 'acme/vision', context_window: 64_000, inputs: ['text', 'image'] },
    ]);
    world.gateway.answer(() => says('Seen.'));
    const client = await startSession();
    const parts = [{ type: 'text' as const, text: 'Look.' }, picture()];
    await runPrompt(client, { parts, model: 'acme/vision' });
    expect(world.gateway.bodies.at(-1)).toContain(png(800, 600));
    await runPrompt(client, { text: 'What was it?', model: 'acme/text' });
    expect(world.gateway.bodies.at(-1)).not.toContain(png(800, 600));
    expect(world.gateway.bodies.at(-1)).toContain('800×600 pixels) was left out here');
    await runPrompt(client, { text: 'Again.', model: 'acme/vision' });
    expect(world.gateway.bodies.at(-1)).toContain(png(800, 600));
    const warnings = (await eventsOf(client)).filter(hasType('run.warning'));
    expect(warnings).toMatchObject([
      { code: 'input_left_out', message: expect.stringContaining('photo.png') as string },
    ]);
  });

  test('has a note that cuts a long name between characters', async () => {
    world.gateway.catalog([{ id: model, context_window: 64_000, inputs: ['text'] }]);
    world.gateway.answer(() => says('Not seen.'));
    const client = await startSession();
    // A name may have 255 characters. These are 400 code units, and the limit of a note falls within a pair.
    const filename = '\u{1f600}'.repeat(200);
    await runPrompt(client, {
      parts: [
        { type: 'text', text: 'Look.' },
        { ...picture(), filename },
      ],
    });
    const prompt = JSON.parse(world.gateway.bodies.at(-1) as string) as {
      prompt: { content: { text: string }[] }[];
    };
    const note = prompt.prompt.at(-1)?.content[0]?.text;
    expect(note).toContain('was left out here');
    // The gateway refuses half of a surrogate pair, and with it every later request of the session.
    expect(note?.isWellFormed()).toBe(true);
  });

  test('is left out of a prompt that nothing else shortens', async () => {
    world.gateway.answer((request) =>
      JSON.stringify(request.prompt).includes('"type":"file"') ? tooLong : says('Seen.'),
    );
    const client = await startSession();
    const parts = [{ type: 'text' as const, text: 'Look.' }, picture()];
    expect(await runPrompt(client, { parts })).toMatchObject({ text: 'Seen.' });
  });

  test('is left out once the model has refused it', async () => {
    world.gateway.answer((request) =>
      JSON.stringify(request.prompt).includes('"type":"file"')
        ? {
            status: 422,
            error: {
              code: 'unsupported_by_model',
              message: 'The model acme/text does not take image input; it takes text.',
            },
          }
        : says('Seen.'),
    );
    const client = await startSession();
    expect(
      await runPrompt(client, { parts: [{ type: 'text', text: 'Look.' }, picture()], model: 'acme/text' }),
    ).toMatchObject({ text: 'Seen.' });
    await runPrompt(client, { text: 'And?', model: 'acme/text' });
    // The first run needed two requests; the second run did not send the picture again.
    expect(world.gateway.requests).toHaveLength(3);
  });
});

describe('a conversation that a provider would refuse as a whole', () => {
  const acceptsNames = ({ prompt }: StreamRequest): boolean =>
    prompt
      .flatMap(({ content }) => (Array.isArray(content) ? content : []))
      .every((part: Record<string, unknown>) =>
        part['type'] === 'text'
          ? (part['text'] as string).trim() !== ''
          : [part['toolName'], part['toolCallId']].every(
              (name) => name === undefined || /^[A-Za-z0-9_-]{1,64}$/.test(name as string),
            ),
      );
  const withStrictNames = (next: (request: StreamRequest) => ScriptedAnswer) => (request: StreamRequest) =>
    acceptsNames(request)
      ? next(request)
      : {
          status: 400,
          error: { code: 'upstream_refused', message: 'The request has an invalid name or text.' },
        };

  test.each(['files.read', 'x'.repeat(300), 'función', ''])(
    'is accepted after a call of the tool %j',
    async (name) => {
      world.gateway.answer(
        withStrictNames((request) =>
          toolResults(request).length === 0 ? calls({ name, input: {}, id: 'call|1:ü' }) : says('Done.'),
        ),
      );
      const client = await startSession();
      for (const text of ['Go.', 'Again.']) {
        expect(await runPrompt(client, { text })).toMatchObject({
          status: 'completed',
        });
      }
      const [result] = toolResults(world.gateway.requests.at(-1) as StreamRequest);
      const [call] = (world.gateway.requests.at(-1)?.prompt ?? []).flatMap(({ role, content }) =>
        role === 'assistant' ? (content as { toolCallId?: string }[]) : [],
      );
      expect(call?.toolCallId).toBeDefined();
      expect(call?.toolCallId).toBe(result?.toolCallId);
    },
  );

  test('is accepted after blank texts of a user and a model', async () => {
    world.gateway.answer(
      withStrictNames((request) =>
        toolResults(request).length === 0
          ? {
              parts: [
                { type: 'text-start', id: 't' },
                { type: 'text-delta', id: 't', delta: '\n\n' },
                { type: 'text-end', id: 't' },
                { type: 'tool-call', toolCallId: 'call_1', toolName: 'files_list', input: '{}' },
                finish('tool-calls'),
              ],
            }
          : says('Done.'),
      ),
    );
    const client = await startSession();
    for (const text of [' ', 'Again.']) {
      expect(await runPrompt(client, { text })).toMatchObject({ status: 'completed' });
    }
  });
});

test('a prompt clips the error of a tool name of a megabyte', async () => {
  world.gateway.answer((request) =>
    toolResults(request).length > 0
      ? says('Done.')
      : calls({ name: `pages_${'x'.repeat(1024 * 1024)}`, input: {}, id: 'long' }),
  );
  const client = await startSession([reader]);
  expect(await runPrompt(client, { text: 'Read.' })).toMatchObject({ status: 'completed' });
  expect(JSON.stringify(world.gateway.requests.at(-1)?.prompt).length).toBeLessThan(20_000);
});

test('two calls of one step with the same id get their own results', async () => {
  world.gateway.answer((request) =>
    toolResults(request).length > 0
      ? says('Done.')
      : calls(
          { name: 'pages_read', input: { page: 1 }, id: 'same' },
          { name: 'pages_read', input: { page: 2 }, id: 'same' },
        ),
  );
  const client = await startSession([reader]);
  await runPrompt(client, { text: 'Read.' });
  const results = toolResults(world.gateway.requests.at(-1) as StreamRequest);
  expect(results.map(({ output }) => String(output.value).slice(0, 7))).toEqual(['Page 1.', 'Page 2.']);
  expect(new Set(results.map(({ toolCallId }) => toolCallId)).size).toBe(2);
});

describe('an input', () => {
  test('is clipped when it alone is longer than the context', async () => {
    world.gateway.catalog([{ id: model, context_window: 16_000 }]);
    world.gateway.answer(() => says('Read.'));
    const client = await startSession();
    expect(
      await runPrompt(client, { text: `First words. ${'x '.repeat(200_000)}Last words.` }),
    ).toMatchObject({ status: 'completed' });
    const prompt = JSON.stringify(world.gateway.requests[0]?.prompt);
    expect(prompt.length).toBeLessThan(40_000);
    for (const words of ['First words.', 'Last words.', 'characters are left out here'])
      expect(prompt).toContain(words);
    expect((await eventsOf(client)).filter(hasType('run.warning'))).toMatchObject([
      { code: 'input_clipped' },
    ]);
  });

  test('with a missing attachment is still answered', async () => {
    world.gateway.answer(() => says('Read.'));
    const { client, dataDir } = await world.start();
    await client.sessions.create({ id: 's' });
    const attachments = [
      { type: 'document' as const, fileName: 'a.txt', contentType: 'text/plain', content: 'A' },
    ];
    await runPrompt(client, { text: 'Read.', attachments });
    await rm(join(dataDir, 'sessions'), { recursive: true });
    expect(await runPrompt(client, { text: 'Again.' })).toMatchObject({ status: 'completed' });
    expect(world.gateway.bodies.at(-1)).toContain('cannot be read any more');
  });

  test('with a text file shows it as text', async () => {
    world.gateway.answer(() => says('Read.'));
    const { client } = await world.start();
    const url = `data:text/csv;base64,${Buffer.from('a;b').toString('base64')}`;
    await client.sessions.create({ id: 's' });
    const parts = [
      { type: 'text' as const, text: 'Read.' },
      { type: 'file' as const, mediaType: 'text/csv', filename: 'a.csv', url },
    ];
    await runPrompt(client, { parts });
    const content = world.gateway.requests[0]?.prompt.at(-1)?.content as { type: string; text: string }[];
    expect(content).toMatchObject([{ type: 'text', text: expect.stringContaining('a;b') as string }]);
  });

  test('with an attached picture shows it as a picture', async () => {
    world.gateway.answer(() => says('Seen.'));
    const { client } = await world.start();
    const attachments = [
      {
        type: 'document' as const,
        fileName: 'photo.png',
        contentType: 'image/png',
        encoding: 'base64' as const,
        content: png(800, 600),
      },
    ];
    await client.sessions.execute({ instructions: 'Look.', attachments });
    expect(world.gateway.requests[0]?.prompt.at(-1)?.content).toMatchObject([
      { type: 'text', text: expect.stringContaining('name="photo.png"') as string },
      { type: 'file', mediaType: 'image/png', data: png(800, 600) },
    ]);
  });
});

test('a session reports once which tools exceed the limits of the gateway', async () => {
  const actions = Object.fromEntries(
    Array.from({ length: 12 }, (_, index) => [
      `act-${String.fromCharCode(97 + index)}`,
      {
        description: 'd'.repeat(100_000),
        input: { type: 'object', additionalProperties: true },
        run: async () => null,
      },
    ]),
  );
  const wordyPlugin = definePlugin({ name: 'wordy', title: 'Wordy', description: 'Many words.', actions });
  world.gateway.answer((_, index) =>
    index === 0 ? calls({ name: 'files_list', input: {} }) : says('Done.'),
  );
  const client = await startSession([wordyPlugin]);
  await runPrompt(client, { text: 'Go.' });
  const bytes = Buffer.byteLength(JSON.stringify(world.gateway.requests[0]?.tools));
  expect(bytes).toBeLessThan(1024 * 1024);
  expect((await eventsOf(client)).filter(hasType('run.warning'))).toMatchObject([
    { code: 'tools_left_out', message: expect.stringContaining('wordy_act-') as string },
  ]);
});
