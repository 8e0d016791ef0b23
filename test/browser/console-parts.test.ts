// Parts of the console's pages, in a real browser, with scripted answers to their calls instead of an agent.
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { hasChromium, launchChromium } from '../support/chromium.ts';
import { startConsole, type TestConsole } from '../support/console.ts';

describe.skipIf(!hasChromium)('a part of a page', { timeout: 60_000 }, () => {
  let consoleServer: TestConsole;
  let browser: Browser;
  let page: Page;
  let pageErrors: string[];
  beforeAll(async () => {
    const tokenFile = join(import.meta.dirname, 'no-such-file');
    consoleServer = await startConsole({ url: 'http://127.0.0.1:1', tokenFile });
    browser = await launchChromium();
  });
  afterAll(async () => {
    await browser?.close();
    await consoleServer?.close();
  });
  beforeEach(async () => {
    pageErrors = [];
    page = await browser.newPage();
    page.on('pageerror', (error) => pageErrors.push(String(error)));
    await page.goto(consoleServer.console.loginUrl());
    await page.getByRole('link', { name: 'Sessions' }).waitFor();
  });
  afterEach(async () => {
    await page.close();
    expect(pageErrors).toEqual([]);
  });

  /**
   * Runs statements in the page, which return a value. They have these functions: `load` imports a module of the
   * pages. `answer(operation, reply)` replaces the answers of an operation: `reply` returns the JSON, or a promise
   * of it, or throws for a console that does not answer. `nextTask` waits for the event that a click causes, and
   * `until` for a condition. `buttonOf` finds a button by its label. `notice` returns the text of the notice.
   */
  const run = (statements: string): Promise<unknown> =>
    page.evaluate(`(async () => {
      const load = (name) => import('/' + name + '.js');
      const nextTask = () => new Promise((resolve) => setTimeout(resolve));
      const until = async (condition) => {
        while (!condition()) await new Promise((resolve) => setTimeout(resolve, 20));
      };
      const buttonOf = (element, label) =>
        [...element.querySelectorAll('button')].find(({ textContent }) => textContent === label);
      const notice = () => document.querySelector('#notice').textContent;
      const replies = {};
      const answer = (operation, reply) => { replies[operation] = reply; };
      window.fetch = async (url, options) => {
        const operation = String(url).replace('/call/', '').replace(/\\?.*/, '');
        const reply = replies[operation];
        if (reply === undefined) return new Promise(() => {});
        const body = await reply(options);
        if (body instanceof Response) return body;
        return new Response(JSON.stringify(body), { status: body.error === undefined ? 200 : 400 });
      };
      ${statements}
    })()`);

  test('shows the errors of list items at the items that were sent', async () => {
    const errorsOfItems = await run(`
      const { createSchemaForm } = await load('shared/schema-form');
      const list = { type: 'array', items: { type: 'string' } };
      const form = createSchemaForm({ properties: { names: list } }, 'plugin.action');
      document.body.replaceChildren(form.element);
      for (let count = 0; count < 3; count += 1) {
        buttonOf(form.element, 'Add item').click();
        await nextTask();
      }
      const controls = [...form.element.querySelectorAll('input')];
      controls[1].value = 'second';
      controls[2].value = 'third';
      const value = form.read();
      const otherErrors = form.showErrors([{ path: 'names[1]', message: 'is too long' }]);
      return { value, otherErrors, invalid: controls.map((control) => control.hasAttribute('aria-invalid')) };
    `);
    expect(errorsOfItems).toEqual({
      value: { names: ['second', 'third'] },
      otherErrors: [],
      invalid: [false, false, true],
    });
  });

  test('shows invalid JSON at its item after an earlier item was removed', async () => {
    const invalid = await run(`
      const { createSchemaForm, FieldError } = await load('shared/schema-form');
      const list = { type: 'array', items: {} };
      const form = createSchemaForm({ properties: { values: list } }, 'plugin.action');
      document.body.replaceChildren(form.element);
      for (const label of ['Add item', 'Add item', 'Remove']) {
        buttonOf(form.element, label).click();
        await nextTask();
      }
      const control = form.element.querySelector('textarea');
      control.value = '{';
      try { form.read(); } catch (error) {
        if (!(error instanceof FieldError)) throw error;
        form.showErrors([error]);
      }
      return control.hasAttribute('aria-invalid');
    `);
    expect(invalid).toBe(true);
  });

  test('shows all errors of one group that no field of it shows', async () => {
    const groupError = await run(`
      const { createSchemaForm } = await load('shared/schema-form');
      const group = { type: 'object', properties: { a: { type: 'string' } } };
      const form = createSchemaForm({ properties: { group } }, 'plugin.action');
      form.showErrors([{ path: 'group.b', message: 'is not known' }, { path: 'group.c', message: 'is missing' }]);
      return [...form.element.querySelectorAll('.fault')].find(({ hidden }) => !hidden).textContent;
    `);
    expect(groupError).toBe('b is not known; c is missing');
  });

  test('redraws a message that changed while it was hidden', async () => {
    const texts = await run(`
      const { createMessageList } = await load('conversation/message-list');
      const log = document.createElement('div');
      document.body.replaceChildren(log);
      const messageOf = (index) => ({
        id: 'm' + index, role: 'assistant', parts: [{ type: 'text', text: 'old ' + index }], runId: null,
        metadata: {}, isOpen: false,
      });
      const messages = Array.from({ length: 100 }, (_, index) => messageOf(index));
      let changedIds = new Set();
      const thread = {
        messages: () => messages, approvals: () => [], queue: () => [], remarks: () => [],
        outcome: () => undefined, fileChanges: () => undefined,
        takeChanged: () => changedIds,
      };
      const list = createMessageList(log, { redraw: () => list.draw(thread) });
      list.draw(thread);
      // One more message hides the first one.
      messages.push(messageOf(100));
      messages[0].parts = [{ type: 'text', text: 'new 0' }];
      changedIds = new Set(['m0', 'm100']);
      list.draw(thread);
      changedIds = new Set();
      const isHidden = !log.textContent.includes('old 0') && !log.textContent.includes('new 0');
      log.querySelector('.earlier').click();
      await nextTask();
      return { isHidden, first: log.querySelector('.message .body').textContent };
    `);
    expect(texts).toEqual({ isHidden: true, first: 'new 0' });
  });

  test('shows a remark of a conversation without messages', async () => {
    const text = await run(`
      const { createMessageList } = await load('conversation/message-list');
      const log = document.createElement('div');
      const thread = {
        messages: () => [], approvals: () => [], queue: () => [], takeChanged: () => new Set(),
        remarks: () => [{ afterMessageId: null, tone: 'bad', text: 'It could not be summarized.' }],
      };
      createMessageList(log, { redraw() {} }).draw(thread);
      return log.textContent;
    `);
    expect(text).toContain('It could not be summarized.');
  });

  test('follows a session once when the agent is back while it is being read', async () => {
    const streams = await run(`
      const { createConversation } = await load('conversation/conversation');
      const session = { id: 's', kind: 'sdk', status: 'idle', activeRunId: null, workspace: 'shared' };
      const sessionRead = Promise.withResolvers();
      let streams = 0;
      answer('sessions.get', () => sessionRead.promise);
      answer('sessions.listMessages', () => ({ items: [], nextCursor: null, seq: 0 }));
      answer('sessions.listQueue', () => ({ items: [] }));
      answer('sessions.listApprovals', () => ({ items: [] }));
      answer('/events', () => { streams += 1; return new Promise(() => {}); });
      const conversation = createConversation('s', { go() {} });
      document.body.replaceChildren(conversation.element);
      conversation.rejoin();
      sessionRead.resolve(session);
      await until(() => streams > 0);
      // Long enough for a second stream.
      await new Promise((resolve) => setTimeout(resolve, 200));
      return streams;
    `);
    expect(streams).toBe(1);
  });

  test('reads a session again when the agent came back during a failing read', async () => {
    const reads = await run(`
      const { createConversation } = await load('conversation/conversation');
      const firstRead = Promise.withResolvers();
      let reads = 0;
      answer('sessions.get', () => {
        reads += 1;
        return reads === 1 ? firstRead.promise : { error: { message: 'Read again.' } };
      });
      const conversation = createConversation('s', { go() {} });
      document.body.append(conversation.element);
      conversation.rejoin();
      firstRead.resolve({ error: { message: 'Not now.' } });
      await until(() => notice().includes('Read again.'));
      return reads;
    `);
    expect(reads).toBe(2);
  });

  test('shows why further sessions cannot be read', async () => {
    await run(`
      const { openSessions } = await load('sessions');
      const session = {
        id: 's', kind: 'sdk', title: 'A', status: 'idle', messageCount: 0, queueLength: 0, forkedFrom: null,
        usage: { inputTokens: 0, outputTokens: 0 }, updatedAt: new Date().toISOString(),
      };
      let calls = 0;
      answer('sessions.list', () => {
        calls += 1;
        return calls === 1
          ? { items: Array(50).fill(session), nextCursor: 'more' }
          : { error: { message: 'The list is not available.' } };
      });
      const root = document.createElement('div');
      document.body.append(root);
      openSessions(root, [], { go() {} });
      await until(() => buttonOf(root, 'Show more') !== undefined);
      buttonOf(root, 'Show more').click();
    `);
    await expect.poll(() => page.locator('#notice').innerText()).toContain('The list is not available.');
  });

  test.each([
    [{ chatId: null, withFile: false }, 'was not sent'],
    [{ chatId: null, withFile: true }, 'If it appears above'],
    [{ chatId: 'chat', withFile: false }, 'If it appears above'],
  ])('says whether an unanswered message may have arrived: %j', async ({ chatId, withFile }, advice) => {
    const problem = await run(`
      const { createComposer } = await load('conversation/composer');
      for (const operation of ['sessions.prompt', 'chat.sendMessage'])
        answer(operation, () => { throw new TypeError('connection lost'); });
      const options = { sessionId: 's', chatId: ${JSON.stringify(chatId)}, isAttended: true, onSent() {} };
      const composer = createComposer(options);
      document.body.replaceChildren(composer);
      composer.querySelector('textarea').value = 'Read it.';
      if (${withFile}) {
        const transfer = new DataTransfer();
        transfer.items.add(new File(['x'], 'x.txt'));
        composer.querySelector('input[type=file]').files = transfer.files;
      }
      composer.requestSubmit();
      const box = composer.querySelector('.problem');
      await until(() => !box.hidden);
      return box.textContent;
    `);
    expect(problem).toContain(advice);
  });

  test('keeps the notice of a signed-out page when the address changes', async () => {
    await page.route('**/call/console.overview', (route) =>
      route.fulfill({ status: 401, json: { error: { code: 'authentication_required' } } }),
    );
    const notice = page.getByText('You are not signed in');
    await notice.waitFor();
    await page.getByRole('link', { name: 'Plugins' }).click();
    await page.waitForURL('**/#/plugins');
    expect(await page.locator('#main').innerText()).toContain('You are not signed in');
  });

  test('opens an address with a malformed escape', async () => {
    await page.goto(`${consoleServer.url}/#/sessions/%E0%A4%A`);
    await page.reload();
    await page.getByText('All sessions').waitFor({ timeout: 20_000 });
    expect(pageErrors).toEqual([]);
  });
});
