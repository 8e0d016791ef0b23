// A complete task of an agent: a repository of 200 files with failing tests, on a model
// with a context of 32,000 tokens. During the task a stream breaks, the agent restarts, the
// context is compacted, the first changes are undone, and after a picture the model changes to
// one that reads text only.
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { hasType, type AgentClient, type SessionEvent } from '@townhall/agent';
import { definePlugin } from '../../../src/agent/plugins/index.ts';
import { readText, assetPath } from '../../../src/kernel/assets.ts';
import { compileSchema, type JsonSchema } from '../../../src/kernel/contract/schema.ts';
import {
  breaksAfter,
  promptBytes,
  toolResults,
  type ScriptedAnswer,
  type StreamRequest,
} from '../../support/scripted-gateway.ts';
import { collect, openWorld, seqs, type World } from '../../support/session-world.ts';

const fileCount = 200;
// Every ninth module is wrong.
const wrongStep = 9;
const contextTokens = 32_000;
const visionModel = 'acme/vision';
const textModel = 'acme/text';
const question = 'Are you back?';
// The requests at which the stream breaks, the gateway refuses, and the agent restarts.
const brokenRequest = 10;
const limitedRequest = 15;
const cutRequest = 30;

const fileName = (index: number) => `src/module-${String(index).padStart(3, '0')}.js`;
function sourceOf(index: number, value: number): string {
  const note = `// Module ${index} of the repository, with notes that make it long.\n`;
  return `${note.repeat(40)}export const value = ${value};\n`;
}

async function writeRepository(workspace: string): Promise<void> {
  await mkdir(join(workspace, 'src'), { recursive: true });
  for (let index = 0; index < fileCount; index += 1) {
    const value = index % wrongStep === 0 ? index + 1 : index;
    await writeFile(join(workspace, fileName(index)), sourceOf(index, value));
  }
}

async function findFailing(workspace: string): Promise<number[]> {
  const failingModules: number[] = [];
  for (let index = 0; index < fileCount; index += 1) {
    const source = await readFile(join(workspace, fileName(index)), 'utf8');
    if (!source.includes(`export const value = ${index};`)) failingModules.push(index);
  }
  return failingModules;
}

const checks = definePlugin({
  name: 'checks',
  title: 'Checks',
  description: 'Runs the tests of the repository.',
  actions: {
    run: {
      description: 'Runs all tests.',
      input: { type: 'object', additionalProperties: false },
      run: async (_, { workspace }) => ({ failing: await findFailing(workspace) }),
    },
  },
});

const usage = {
  inputTokens: { total: 900, cacheRead: 700 },
  outputTokens: { total: 40, reasoning: 10 },
};

const creditsPerAnswer = 3;

function answerWithParts(parts: object[], finishReason: string): ScriptedAnswer {
  return {
    parts: [
      ...parts,
      {
        type: 'finish',
        finishReason: { unified: finishReason },
        usage,
        providerMetadata: { townhall: { credits: creditsPerAnswer } },
      },
    ],
  };
}

const textParts = (words: string) => [
  { type: 'text-start', id: 't' },
  { type: 'text-delta', id: 't', delta: words },
  { type: 'text-end', id: 't' },
];

/** A model that uses its prompt alone: runs the tests, reads a failing file, repairs it. */
function createRepairer() {
  let calls = 0;
  const call = (toolName: string, input: object) => ({
    type: 'tool-call',
    toolCallId: `call_${(calls += 1)}`,
    toolName,
    input: JSON.stringify(input),
  });
  return (request: StreamRequest): ScriptedAnswer => {
    if (JSON.stringify(request.prompt.at(-1)).includes('Sum up the conversation'))
      return answerWithParts(
        textParts('The tests of the repository fail; the modules are repaired one by one.'),
        'stop',
      );
    if (JSON.stringify(request.prompt.at(-1)).includes(question))
      return answerWithParts(textParts('Yes.'), 'stop');
    const lastResult = toolResults(request).at(-1);
    const value = lastResult?.output.value as
      | { failing?: number[]; path?: string; content?: string }
      | undefined;
    const repairedModule = /module-(\d+)/.exec(value?.path ?? '')?.[1];
    if (value?.failing?.length === 0) return answerWithParts(textParts('All tests pass.'), 'stop');
    if (value?.failing !== undefined)
      return answerWithParts(
        [call('files_read', { path: fileName(value.failing[0] as number) })],
        'tool-calls',
      );
    if (value?.content !== undefined && repairedModule !== undefined) {
      const content = sourceOf(Number(repairedModule), Number(repairedModule));
      return answerWithParts(
        [...textParts('I repair it.'), call('files_write', { path: value.path, content })],
        'tool-calls',
      );
    }
    return answerWithParts([call('checks_run', {})], 'tool-calls');
  };
}

const picture = {
  type: 'file' as const,
  mediaType: 'image/png',
  filename: 'failure.png',
  url: `data:image/png;base64,${Buffer.from('\x89PNG\r\n\x1a\nIHDR', 'latin1').toString('base64')}`,
};

describe('a repair task on a small context', () => {
  let world: World;
  let folder: string;
  beforeAll(async () => {
    world = await openWorld();
    folder = await mkdtemp(join(tmpdir(), 'townhall-repair-'));
    await writeRepository(join(folder, 'repository'));
  });
  afterAll(async () => {
    await world.reset();
    await world.close();
    await rm(folder, { recursive: true, force: true });
  });

  const start = () =>
    world.start({
      name: 'repairer',
      dataDir: join(folder, 'data'),
      workspace: join(folder, 'repository'),
      createOptions: { plugins: [checks] },
      settings: { maxSteps: 500, modelRetries: 5, modelWaitMs: 60_000 },
    });

  const failingModules = () => findFailing(join(folder, 'repository'));

  /** Lets a model repair the repository, through all faults; resolves at the request that is cut. */
  function scriptRepair(): Promise<void> {
    world.gateway.catalog([
      { id: visionModel, context_window: contextTokens, inputs: ['text', 'image'] },
      { id: textModel, context_window: contextTokens, inputs: ['text'] },
    ]);
    const repair = createRepairer();
    const cut = Promise.withResolvers<void>();
    world.gateway.answer((request, index) => {
      if (index === brokenRequest) return breaksAfter(...textParts('I look at').slice(0, 2));
      if (index === limitedRequest)
        return {
          status: 429,
          error: { type: 'rate_limit_error', code: 'rate_limited' },
          headers: { 'retry-after': '1' },
        };
      if (index === cutRequest) {
        cut.resolve();
        return { respond: () => new Promise(() => {}) };
      }
      return repair(request);
    });
    return cut.promise;
  }

  /** Starts the task and closes the agent in the middle; returns the id of the run. */
  async function interruptTask(): Promise<string> {
    const cut = scriptRepair();
    const agent = await start();
    await agent.client.sessions.create({ id: 's' });
    const parts = [{ type: 'text' as const, text: 'Repair the repository.' }, picture];
    const { runId } = await agent.client.sessions.prompt({ sessionId: 's', parts, model: visionModel });
    await cut;
    await agent.close();
    return runId;
  }

  /** The next agent asks the model something, whose prompt begins like the one that was cut. */
  async function resume({ sessions }: AgentClient): Promise<void> {
    const answer = await sessions.prompt(
      { sessionId: 's', text: question, model: visionModel },
      { headers: { prefer: 'wait=60' } },
    );
    expect(answer).toMatchObject({ status: 'completed' });
    const [promptBefore, promptAfter] = world.gateway.bodies.slice(cutRequest).map(promptBytes);
    expect(promptAfter?.slice(0, promptBefore?.length)).toEqual(promptBefore);
  }

  async function undo({ sessions }: AgentClient, runId: string): Promise<void> {
    const failingBefore = await failingModules();
    const { files } = await sessions.undoRun({ sessionId: 's', runId });
    expect(files.length).toBeGreaterThan(3);
    expect(await failingModules()).toHaveLength(failingBefore.length + files.length);
  }

  /** Completes the task on the model that reads text only, and returns all events. */
  async function complete({ sessions }: AgentClient): Promise<SessionEvent[]> {
    const { runId } = await sessions.prompt({ sessionId: 's', text: 'Go on.', model: textModel });
    const events = await collect(sessions.follow({ sessionId: 's', until: 'idle' }));
    expect(await sessions.getRun({ sessionId: 's', runId })).toMatchObject({
      status: 'completed',
      text: 'All tests pass.',
    });
    expect(await failingModules()).toEqual([]);
    expect(await readdir(join(folder, 'repository', 'src'))).toHaveLength(fileCount);
    return events;
  }

  test('succeeds despite faults, a restart, an undo and another model', { timeout: 300_000 }, async () => {
    const runId = await interruptTask();
    const { client } = await start();
    await resume(client);
    await undo(client, runId);
    const events = await complete(client);
    await expectValid(events);
    expectFaults(events);
    // About four characters are a token. A body also has the definitions of the tools and JSON around the texts.
    for (const body of world.gateway.bodies) expect(body.length / 4).toBeLessThan(contextTokens * 1.5);
    expectPrefixes(world.gateway.bodies, events);
    expectUsage((await client.sessions.get({ sessionId: 's' })).usage, events);
  });
});

/** All faults and their remedies have happened. */
function expectFaults(events: readonly SessionEvent[]): void {
  const types = new Set(events.map(({ type }) => type));
  for (const type of [
    'run.retrying',
    'run.waiting',
    'run.warning',
    'context.pruned',
    'compaction.ended',
    'workspace.changed',
    'workspace.undone',
  ] as const)
    expect(types).toContain(type);
  // Each of the 23 wrong modules takes three steps: to test, to read and to write.
  expect(events.filter(({ type }) => type === 'run.step.started').length).toBeGreaterThan(60);
}

/** The session has paid for each step and each summary. */
function expectUsage(total: object, events: readonly SessionEvent[]): void {
  const answerCount = events.filter(hasType('run.step.ended', 'compaction.ended')).length;
  expect(total).toMatchObject({
    inputTokens: usage.inputTokens.total * answerCount,
    cachedInputTokens: usage.inputTokens.cacheRead * answerCount,
    credits: creditsPerAnswer * answerCount,
  });
}

/** Validates events against the schemas of the contract; the seqs have no gap. */
async function expectValid(events: readonly SessionEvent[]): Promise<void> {
  const bundle = JSON.parse(await readText(assetPath('src/contract/agent/bundle.json'))) as {
    components: JsonSchema;
  };
  const check = compileSchema({ $ref: '#/components/schemas/SessionEvent', components: bundle.components });
  for (const event of events) expect([event, check(event)]).toEqual([event, { ok: true }]);
  expect(seqs(events)).toEqual(seqs(events).map((_, index) => index + 1));
}

/**
 * Each request begins with the previous one, except where the log records a
 * shortened context or another model.
 */
function expectPrefixes(bodies: readonly string[], events: readonly SessionEvent[]): void {
  const prompts = bodies
    .filter((body) => !body.includes('Sum up the conversation'))
    .map((body) => ({ ...modelAndTools(body), messages: promptBytes(body) }));
  let breaks = 0;
  for (const [index, prompt] of prompts.entries()) {
    const previousPrompt = prompts[index - 1];
    if (previousPrompt === undefined || previousPrompt.model !== prompt.model) continue;
    expect(prompt.tools).toBe(previousPrompt.tools);
    const isPrefix = previousPrompt.messages.every(
      (message, position) => prompt.messages[position] === message,
    );
    if (!isPrefix) breaks += 1;
  }
  const shortenings = events.filter(({ type }) => type === 'context.pruned' || type === 'compaction.ended');
  expect(breaks).toBeLessThanOrEqual(shortenings.length);
  expect(breaks).toBeLessThan(prompts.length / 5);
}

function modelAndTools(body: string): { model: string; tools: string } {
  const { model, tools } = JSON.parse(body) as { model: string; tools?: unknown };
  return { model, tools: JSON.stringify(tools) };
}
