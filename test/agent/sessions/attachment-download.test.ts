// The download of attachments: their bytes, and headers with which no browser runs them.
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import {
  cacheHeaders,
  contentHeaders,
  mediaTypeOf,
} from '../../../src/agent/sessions/attachments/download.ts';
import type { AgentConfig } from '../../../src/agent/config.ts';
import type { TestAgent } from '../../support/agent.ts';
import { startS3Server, type S3Server } from '../../support/s3-server.ts';
import { says } from '../../support/scripted-gateway.ts';
import { openWorld, type World } from '../../support/session-world.ts';

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterEach(() => world.reset());
afterAll(() => world.close());

const page = '<script>alert(1)</script> é';

/** Prompts with a page and a picture, and returns the ids of both attachments. */
async function attach({ client }: TestAgent): Promise<[string, string]> {
  world.gateway.answer(() => says('Read.'));
  await client.sessions.create({ id: 's' });
  await client.sessions.prompt(
    {
      sessionId: 's',
      text: 'Read them.',
      attachments: [
        {
          type: 'document',
          fileName: 'ev"il/é.html',
          contentType: 'text/html; charset=utf-7',
          content: page,
        },
        {
          type: 'document',
          fileName: 'dot.png',
          contentType: 'image/png',
          content: Buffer.from([1, 2, 255]).toString('base64'),
          encoding: 'base64',
        },
      ],
    },
    { headers: { prefer: 'wait=20' } },
  );
  const { items } = await client.sessions.listMessages({ sessionId: 's' });
  return (items[0]?.parts ?? []).flatMap((part) =>
    part.type === 'data-attachment' ? [part.data.attachmentId] : [],
  ) as [string, string];
}

function get({ fetch: send, token }: TestAgent, sessionId: string, attachmentId: string, headers = {}) {
  return send(`/api/sdk/sessions/${sessionId}/attachments/${attachmentId}`, {
    headers: { authorization: `Bearer ${token}`, ...headers },
  });
}

describe('sessions.getAttachment', () => {
  test('returns the bytes through the client', async () => {
    const agent = await world.start();
    const [html, png] = await attach(agent);
    const download = (attachmentId: string) =>
      agent.client.sessions.getAttachment({ sessionId: 's', attachmentId });
    expect(await (await download(html)).text()).toBe(page);
    expect([...new Uint8Array(await (await download(png)).arrayBuffer())]).toEqual([1, 2, 255]);
  });

  test('makes a browser save the content instead of running it', async () => {
    const agent = await world.start();
    const [html] = await attach(agent);
    const { status, headers } = await get(agent, 's', html);
    expect(status).toBe(200);
    expect(headers.get('content-type')).toBe('text/html; charset=utf-8');
    expect(headers.get('content-disposition')).toBe(
      'attachment; filename="ev_il__.html"; filename*=UTF-8\'\'ev%22il_%C3%A9.html',
    );
    expect(headers.get('content-security-policy')).toBe("default-src 'none'; sandbox");
    expect(headers.get('x-content-type-options')).toBe('nosniff');
    expect(headers.get('cache-control')).toBe('private, no-cache');
  });

  test('answers 304 to its tag', async () => {
    const agent = await world.start();
    const [html] = await attach(agent);
    const etag = (await get(agent, 's', html)).headers.get('etag') as string;
    const { status, headers } = await get(agent, 's', html, { 'if-none-match': etag });
    expect([status, headers.get('etag')]).toEqual([304, etag]);
    expect((await get(agent, 's', html, { 'if-none-match': '"other"' })).status).toBe(200);
  });

  test('serves a fork the attachments of shared messages only', async () => {
    const agent = await world.start();
    const [html] = await attach(agent);
    const { items } = await agent.client.sessions.listMessages({ sessionId: 's' });
    const fork = async (position: 'before' | 'after') =>
      (await agent.client.sessions.fork({
        sessionId: 's',
        messageId: items[0]?.id as string,
        position,
      })) as { id: string };
    expect((await get(agent, (await fork('after')).id, html)).status).toBe(200);
    expect((await get(agent, (await fork('before')).id, html)).status).toBe(404);
  });

  test('finds no attachment of another session or agent', async () => {
    const [agent, otherAgent] = [await world.start(), await world.start()];
    const [html] = await attach(agent);
    await agent.client.sessions.create({ id: 't' });
    await otherAgent.client.sessions.create({ id: 's' });
    const notFound = { status: 404, code: 'attachment_not_found' };
    const download = ({ client }: TestAgent, sessionId: string, attachmentId: string) =>
      client.sessions.getAttachment({ sessionId, attachmentId });
    await expect(download(agent, 's', 'att_unknown')).rejects.toMatchObject(notFound);
    await expect(download(agent, 't', html)).rejects.toMatchObject(notFound);
    await expect(download(otherAgent, 's', html)).rejects.toMatchObject(notFound);
  });

  test('refuses an unknown token', async () => {
    const agent = await world.start();
    const [html] = await attach(agent);
    expect((await get(agent, 's', html, { authorization: 'Bearer th_agt_none' })).status).toBe(401);
  });

  test('refuses a path in place of an id', async () => {
    const agent = await world.start();
    expect((await get(agent, 's', '..%2f..%2fagent.token')).status).toBe(400);
  });

  test('reports a file that is gone', async () => {
    const agent = await world.start();
    const [html] = await attach(agent);
    await rm(join(agent.dataDir, 'sessions'), { recursive: true });
    await expect(
      agent.client.sessions.getAttachment({ sessionId: 's', attachmentId: html }),
    ).rejects.toMatchObject({ status: 404, message: expect.stringContaining('removed from the disk') });
  });
});

describe('an agent with a bucket', () => {
  let server: S3Server;
  let settings: Partial<AgentConfig>;
  beforeAll(async () => {
    server = await startS3Server();
    settings = settingsOf(server);
  });
  afterAll(() => server.close());

  function settingsOf({ options }: S3Server): Partial<AgentConfig> {
    return {
      s3Bucket: options.bucket,
      s3Endpoint: options.endpoint,
      s3Prefix: options.prefix,
      s3KeyId: options.keyId,
      s3Secret: options.secret,
    };
  }

  test('returns the bytes from the bucket', async () => {
    const agent = await world.start({ settings });
    const [html] = await attach(agent);
    expect(await (await get(agent, 's', html)).text()).toBe(page);
    expect(await server.keys()).toContainEqual(
      expect.stringMatching(new RegExp(`^city/sessions/[0-9a-f]{40}/${html}\\.html$`)),
    );
    expect(await readdir(agent.dataDir)).not.toContain('sessions');
  });

  test('shows the bytes to the model', async () => {
    const agent = await world.start({ settings });
    await attach(agent);
    expect(JSON.stringify(world.gateway.requests.at(-1))).toContain('alert(1)');
  });

  test('removes the files of a removed session', async () => {
    const keysBefore = await server.keys();
    const agent = await world.start({ settings });
    await attach(agent);
    expect(await server.keys()).toHaveLength(keysBefore.length + 2);
    await agent.client.sessions.remove({ sessionId: 's' });
    await expect.poll(() => server.keys()).toEqual(keysBefore);
  });

  test('answers 503 for a file while the bucket is unreachable', async () => {
    const brokenServer = await startS3Server();
    const agent = await world.start({ settings: settingsOf(brokenServer) });
    const [html] = await attach(agent);
    await brokenServer.close();
    const answer = await get(agent, 's', html);
    expect(answer.status).toBe(503);
    expect(await answer.json()).toMatchObject({ error: { code: 'storage_unavailable' } });
  });

  test('does not start without the bucket', async () => {
    await expect(world.start({ settings: { ...settings, s3Bucket: 'no-such-bucket' } })).rejects.toThrow(
      'AGENT_STORAGE_S3_BUCKET: ',
    );
  });
});

describe('the headers of an attachment', () => {
  test.each([
    'a\r\nset-cookie: x',
    '"; filename="b',
    '\u202egnp.exe',
    '../../etc/passwd',
    '名前.txt',
    '\ud800',
  ])('keep the name %j within its parameter', (fileName) => {
    const disposition = contentHeaders({ fileName })['content-disposition'] as string;
    expect(disposition).toMatch(
      /^attachment; filename="[\x20-\x21\x23-\x7e]*"; filename\*=UTF-8''[\w%!~.-]*$/,
    );
    expect(disposition).not.toMatch(/[/\\]/);
  });

  test('name UTF-8 for any text', () => {
    expect(mediaTypeOf({ contentType: 'text/plain;charset=latin1', encoding: 'utf-8' })).toBe(
      'text/plain; charset=utf-8',
    );
  });

  test('keep the parameters of a binary type', () => {
    expect(mediaTypeOf({ contentType: 'audio/ogg; codecs=opus', encoding: 'base64' })).toBe(
      'audio/ogg; codecs=opus',
    );
  });

  test('have the id as the entity tag', () => {
    expect(cacheHeaders({ attachmentId: 'att_1' }).etag).toBe('"att_1"');
  });
});
