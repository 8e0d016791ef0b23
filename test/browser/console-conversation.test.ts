// The order of a conversation in a real Chromium, and how it shows runs that did not complete.
import type { Locator, Page } from 'playwright-core';
import type { Session } from '@townhall/agent';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { hasChromium } from '../support/chromium.ts';
import { openConsoleBrowser, type ConsoleBrowser } from '../support/console-browser.ts';
import { says, type ScriptedAnswer, type StreamRequest } from '../support/scripted-gateway.ts';
import { holdAnswer, type ControlledAnswer } from '../support/session-world.ts';

/** The text of the model's newest input. */
function lastInput({ prompt }: StreamRequest): string {
  const { content } = prompt.findLast(({ role }) => role === 'user') ?? { content: '' };
  return typeof content === 'string'
    ? content
    : (content as { text?: string }[]).map(({ text = '' }) => text).join('');
}

const answerTo = (request: StreamRequest): ScriptedAnswer => says(`Answer to ${lastInput(request)}`);
const failure: ScriptedAnswer = {
  status: 400,
  error: { code: 'context_too_long', message: 'The prompt is too long for this model.' },
};

describe.skipIf(!hasChromium)('a conversation of the console', { timeout: 120_000 }, () => {
  let world: ConsoleBrowser;
  let page: Page;

  beforeAll(async () => {
    world = await openConsoleBrowser();
  });
  afterAll(async () => {
    await world?.close();
    expect(world?.pageErrors).toEqual([]);
  });

  type Answer = (request: StreamRequest) => ScriptedAnswer;

  /** Lets the test write the next answer; `laterAnswer` writes the answers after it. */
  function holdNextAnswer(laterAnswer: Answer = answerTo): ControlledAnswer {
    const slowAnswer = holdAnswer();
    const requestCount = world.gateway.requests.length;
    world.gateway.answer((request, index) =>
      index === requestCount ? slowAnswer.answer : laterAnswer(request),
    );
    return slowAnswer;
  }
  async function openPage(hash?: string): Promise<void> {
    await page?.context().close();
    page = await world.open(hash);
  }
  async function startChat(firstText: string, laterAnswer?: Answer): Promise<ControlledAnswer> {
    const slowAnswer = holdNextAnswer(laterAnswer);
    await openPage();
    await send(firstText);
    await slowAnswer.request;
    // A new chat moves to the page of its session. A key that is pressed meanwhile would be lost.
    await page.locator('.conversation .pill', { hasText: 'working' }).waitFor();
    return slowAnswer;
  }
  async function send(text: string): Promise<void> {
    await page.getByRole('textbox', { name: 'Message' }).fill(text);
    await page.keyboard.press('Enter');
  }
  const waitingItems = () => page.getByRole('region', { name: 'Waiting' }).getByRole('listitem');
  const waitForIdle = () => page.locator('.conversation .pill', { hasText: 'idle' }).waitFor();
  const texts = () => page.locator('.message > .body').allTextContents();
  const reload = async (): Promise<void> => {
    await page.reload();
    await page.locator('.message').first().waitFor();
  };
  /** Expects the texts as they were streamed, and after a reload as they are stored. */
  const expectTexts = async (expected: string[]): Promise<void> => {
    await expect.poll(texts).toEqual(expected);
    await reload();
    await expect.poll(texts).toEqual(expected);
  };

  test('shows each of six queued questions above its own answer', async () => {
    const slowAnswer = await startChat('Question 1');
    for (const number of [2, 3, 4, 5, 6]) await send(`Question ${number}`);
    await waitingItems().nth(4).waitFor();
    const questions = ['Question 1', '', ...[2, 3, 4, 5, 6].map((number) => `Question ${number}`)];
    await expectTexts(questions);
    expect(await page.locator('.message', { has: page.getByText('queued', { exact: false }) }).count()).toBe(
      5,
    );
    slowAnswer.say('Answer to Question 1');
    slowAnswer.end();
    await page.getByText('Answer to Question 6').waitFor();
    await waitForIdle();
    await expectTexts(
      [1, 2, 3, 4, 5, 6].flatMap((number) => [`Question ${number}`, `Answer to Question ${number}`]),
    );
  });

  test('keeps the order around a failed and a removed question', async () => {
    const slowAnswer = await startChat('Question 1', (request) =>
      lastInput(request) === 'Question 2' ? failure : answerTo(request),
    );
    for (const number of [2, 3, 4]) await send(`Question ${number}`);
    await waitingItems().nth(2).waitFor();
    await waitingItems().nth(1).getByRole('button').click();
    await waitingItems().nth(2).waitFor({ state: 'detached' });
    slowAnswer.say('Answer to Question 1');
    slowAnswer.end();
    await page.getByText('Answer to Question 4').waitFor();
    await waitForIdle();
    await expectTexts([
      'Question 1',
      'Answer to Question 1',
      'Question 2',
      '',
      'Question 3',
      'Question 4',
      'Answer to Question 4',
    ]);
    expect(
      await page.locator('.message', { hasText: 'Question 3' }).getByText('removed', { exact: true }).count(),
    ).toBe(1);
  });

  test('puts an urgent question before queued questions', async () => {
    const session = await world.agent.client.sessions.create({ title: 'Urgent' });
    const slowAnswer = holdNextAnswer();
    await openPage(`#/sessions/${session.id}`);
    await send('Question 1');
    await slowAnswer.request;
    await send('Question 2');
    await waitingItems().nth(0).waitFor();
    await page.getByLabel('When the agent is busy').selectOption('interrupt');
    await send('Question 3');
    await page.getByText('Answer to Question 2').waitFor();
    await waitForIdle();
    await expectTexts([
      'Question 1',
      '',
      'Question 3',
      'Answer to Question 3',
      'Question 2',
      'Answer to Question 2',
    ]);
    expect(await page.getByText('The run was stopped.').count()).toBe(1);
  });

  /** Opens a chat whose only run is refused within its stream; returns the element with the reason. */
  async function failChat(text: string): Promise<Locator> {
    const slowAnswer = await startChat(text);
    const error = {
      type: 'invalid_request_error',
      code: 'upstream_refused',
      message: 'This prompt is not allowed.',
      param: null,
      request_id: 'req_1',
    };
    const response = await slowAnswer.request;
    response.end(`data: ${JSON.stringify({ type: 'error', error })}\n\n`);
    const reason = page.locator('.message.assistant .outcome');
    await reason.waitFor();
    return reason;
  }

  test('shows why a run failed even after a reload', async () => {
    const reason = await failChat('Count the errors.');
    await expect.poll(() => reason.innerText()).toContain('This prompt is not allowed.');
    await reload();
    await expect.poll(() => reason.innerText()).toContain('This prompt is not allowed.');
  });

  test('sends the prompt of a failed run again on request', async () => {
    const reason = await failChat('Summarise the log.');
    await reason.getByRole('button', { name: 'Retry' }).click();
    await page.getByText('Answer to Summarise the log.').waitFor();
    await waitForIdle();
    await expectTexts(['Summarise the log.', '', 'Summarise the log.', 'Answer to Summarise the log.']);
    expect(world.gateway.requests.slice(-2).map(lastInput)).toEqual([
      'Summarise the log.',
      'Summarise the log.',
    ]);
  });

  test('shows in a fork why a run of its parent failed', async () => {
    world.gateway.answer(() => failure);
    const session = await world.agent.client.sessions.create({ title: 'Fails' });
    await world.agent.client.sessions.prompt(
      { sessionId: session.id, text: 'Too much' },
      { headers: { prefer: 'wait=20' } },
    );
    const fork = (await world.agent.client.sessions.fork({ sessionId: session.id })) as Session;
    await openPage(`#/sessions/${fork.id}`);
    await expect.poll(() => page.locator('.outcome').innerText()).toContain('too long');
  });
});
