// Authentication on every route of both variants, as their contracts list them: one exact bearer
// token, checked after Host, Origin and Sec-Fetch-Site. A refused request has no effect.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { tokenAdmin, tokenStore } from '../../../src/agent/tokens/index.ts';
import { createRedactor, createToken } from '../../../src/kernel/secrets/secret.ts';
import { startAgent, type TestAgent } from '../../support/agent.ts';
import { testDatabase, type TestDatabase } from '../../support/databases.ts';
import { scriptedGateway, type ScriptedGateway } from '../../support/scripted-gateway.ts';
import { rawRequest, sendBytes } from '../../support/raw-http.ts';

interface Route {
  method: string;
  path: string;
  isOpen: boolean;
}

function routesOf(variant: 'current' | 'classic'): Route[] {
  const folder = variant === 'classic' ? 'agent-classic' : 'agent';
  const bundle = JSON.parse(
    readFileSync(join(import.meta.dirname, '../../../src/contract', folder, 'bundle.json'), 'utf8'),
  ) as { paths: Record<string, Record<string, { security?: object[] }>> };
  return Object.entries(bundle.paths).flatMap(([template, item]) =>
    ['get', 'post', 'put', 'patch', 'delete'].flatMap((method) => {
      const operation = item[method];
      return operation === undefined
        ? []
        : [
            {
              method: method.toUpperCase(),
              path: template.replaceAll(/\{[^}]+\}/g, 'nothing'),
              isOpen: operation.security?.length === 0,
            },
          ];
    }),
  );
}

/** Headers that resemble the token's or carry it elsewhere, by a name for the failure message. */
function wrongCredentials(token: string): Record<string, Record<string, string>> {
  const swappedToken = token.replace(/[a-z](?=[^a-z]*$)/, (letter) => letter.toUpperCase());
  return {
    none: {},
    basic: { authorization: `Basic ${Buffer.from(`agent:${token}`).toString('base64')}` },
    'another scheme': { authorization: `Token ${token}` },
    bare: { authorization: token },
    'another case': { authorization: `Bearer ${swappedToken}` },
    'a prefix': { authorization: `Bearer ${token.slice(0, -1)}` },
    'a suffix': { authorization: `Bearer ${token}0` },
    unknown: { authorization: `Bearer ${createToken('agt')}` },
    'in upper case': { authorization: `Bearer ${token.toUpperCase()}` },
    twice: { authorization: `Bearer ${token}, ${token}` },
    quoted: { authorization: `Bearer "${token}"` },
    'ten kilobytes': { authorization: `Bearer ${'a'.repeat(10_000)}` },
    injection: { authorization: "Bearer ' OR 1=1--" },
    user: { authorization: `Bearer ${createToken('usr')}` },
    admin: { authorization: `Bearer ${createToken('adm')}` },
    cookie: { cookie: `agent=${token}` },
    header: { 'x-api-key': token },
  };
}

/** Hosts, origins and sites other than those of an agent at the port, by a name for the failure message. */
function untrustedHeaders(port: number): Record<string, [string, string][]> {
  const ownHost = `127.0.0.1:${port}`;
  return {
    'evil.test': [['Host', 'evil.test']],
    'evil.test with our port': [['Host', `evil.test:${port}`]],
    'beginning with ours': [['Host', `localhost.evil.test:${port}`]],
    resolving: [['Host', `127.0.0.1.nip.io:${port}`]],
    'another port': [['Host', '127.0.0.1:1']],
    'no port': [['Host', '127.0.0.1']],
    'the wildcard address': [['Host', `0.0.0.0:${port}`]],
    'with credentials': [['Host', `a@${ownHost}`]],
    'two hosts': [
      ['Host', ownHost],
      ['Host', 'evil.test'],
    ],
    'two of ours': [
      ['Host', ownHost],
      ['Host', ownHost],
    ],
    'two hosts, ours last': [
      ['Host', 'evil.test'],
      ['Host', ownHost],
    ],
    'null origin': [
      ['Host', ownHost],
      ['Origin', 'null'],
    ],
    'another origin': [
      ['Host', ownHost],
      ['Origin', 'https://evil.test'],
    ],
    'another local origin': [
      ['Host', ownHost],
      ['Origin', 'http://localhost:1'],
    ],
    'ours as https': [
      ['Host', ownHost],
      ['Origin', `https://${ownHost}`],
    ],
    'a longer origin': [
      ['Host', ownHost],
      ['Origin', `http://${ownHost}.evil.test`],
    ],
    'cross-site': [
      ['Host', ownHost],
      ['Sec-Fetch-Site', 'cross-site'],
    ],
    'same site, other port': [
      ['Host', ownHost],
      ['Sec-Fetch-Site', 'same-site'],
    ],
  };
}

let world: TestDatabase;
let gateway: ScriptedGateway;
beforeAll(async () => {
  world = await testDatabase();
  gateway = await scriptedGateway();
});
afterAll(async () => {
  await gateway.close();
  await world.close();
});

describe.each(['current', 'classic'] as const)('authentication in the %s variant', (variant) => {
  const routes = routesOf(variant);
  let agent: TestAgent;
  let otherAgent: TestAgent;
  let revokedToken: string;
  let expiredToken: string;
  beforeAll(async () => {
    agent = await startAgent({
      gatewayUrl: gateway.url,
      database: world.database,
      variant,
      name: `own-${variant}`,
    });
    otherAgent = await startAgent({
      gatewayUrl: gateway.url,
      database: world.database,
      variant,
      name: `other-${variant}`,
    });
    const [row] = await world.database.sql<
      { agent_id: string }[]
    >`select agent_id from agent.tokens_agents where name = ${`own-${variant}`}`;
    const admin = tokenAdmin({
      store: tokenStore(world.database),
      agentId: row?.agent_id ?? '',
      redactor: createRedactor(),
    });
    const firstToken = await admin.create({ name: 'revoked' });
    await admin.revoke(firstToken.tokenId);
    revokedToken = firstToken.token;
    const secondToken = await admin.create({ name: 'expired', ttlSeconds: 1 });
    expiredToken = secondToken.token;
    await world.database.sql`
      update agent.tokens_tokens set expires_at = now() - interval '1 minute'
      where token_id = ${secondToken.tokenId}`;
  });
  afterAll(async () => {
    await agent.close();
    await otherAgent.close();
  });

  // The effects that a request could have: rows of any kind and model calls.
  async function countEffects(): Promise<unknown> {
    const [row] = await world.database.sql`
      select
        (select count(*) from agent.sessions_sessions)::int as sessions,
        (select count(*) from agent.sessions_events)::int as events,
        (select count(*) from agent.plugins_notes)::int as notes,
        (select count(*) from agent.tokens_tokens where revoked_at is null)::int as tokens`;
    return { ...row, requestCount: gateway.requests.length };
  }

  test('has the routes of the contract', () => {
    expect(routes.filter(({ isOpen }) => isOpen).map(({ method, path }) => `${method} ${path}`)).toEqual([
      'GET /health',
      'GET /openapi.json',
    ]);
    expect(routes.map(({ method, path }) => `${method} ${path}`)).toEqual(
      expect.arrayContaining([
        'POST /api/plugins/action',
        'POST /api/services/control',
        'POST /service/chat/send',
        'POST /service/nothing/nothing',
        'GET /api/ui/plugins',
      ]),
    );
  });

  test('admits exactly one bearer token on every route', async () => {
    const { token } = agent;
    const credentials = {
      ...wrongCredentials(token),
      'another agent’s': { authorization: `Bearer ${otherAgent.token}` },
      revoked: { authorization: `Bearer ${revokedToken}` },
      expired: { authorization: `Bearer ${expiredToken}` },
    };
    const effectsBefore = await countEffects();
    for (const { method, path, isOpen } of routes) {
      for (const [name, headers] of Object.entries(credentials)) {
        const { status, challenge, body } = await send(
          agent,
          method,
          `${path}?token=${token}&access_token=${token}`,
          headers,
        );
        // An open route ignores the credentials and refuses the unknown parameters of the query.
        expect([name, method, path, status]).toEqual([name, method, path, isOpen ? 400 : 401]);
        if (isOpen) continue;
        expect(challenge, `${method} ${path}`).toMatch(/^Bearer/);
        expect(JSON.parse(body)).toMatchObject({ success: false, error: { type: 'authentication_error' } });
      }
      // The right token passes authentication; the query or the body is then refused, so that no
      // stream opens.
      const { status } = await send(
        agent,
        method,
        `${path}?nonsense=1`,
        { authorization: `Bearer ${token}` },
        '{"nonsense":1}',
      );
      expect([method, path, [401, 403, 500].includes(status)]).toEqual([method, path, false]);
    }
    expect(await countEffects()).toEqual(effectsBefore);
  });

  test('refuses untrusted hosts, origins and sites even with a token', async () => {
    const { port } = new URL(agent.url);
    const effectsBefore = await countEffects();
    for (const { method, path } of [
      ...routes,
      { method: 'GET', path: '/nowhere' },
      { method: 'OPTIONS', path: '/api/execute' },
    ]) {
      for (const [name, headers] of Object.entries(untrustedHeaders(Number(port)))) {
        // Without a token the answer is 403 too, not 401: Host and Origin are checked first.
        for (const authorization of [`Bearer ${agent.token}`, '']) {
          const answer = await rawRequest(
            agent.url,
            method,
            path,
            [
              ...headers,
              ...(authorization === '' ? [] : [['Authorization', authorization] as [string, string]]),
              ['Content-Type', 'application/json'],
              ['Content-Length', '2'],
            ],
            '{}',
          );
          expect([name, method, path, answer.status]).toEqual([name, method, path, 403]);
          expect(JSON.parse(answer.body)).toMatchObject({
            success: false,
            error: { type: 'permission_error' },
          });
          expect(
            Object.keys(answer.headers).filter((header) => header.startsWith('access-control-')),
          ).toEqual([]);
        }
      }
      const lines = [
        `${method} http://evil.test${path} HTTP/1.1`,
        `Host: 127.0.0.1:${port}`,
        `Authorization: Bearer ${agent.token}`,
        'Content-Length: 0',
        'Connection: close',
      ];
      const answer = await sendBytes(Number(port), `${lines.join('\r\n')}\r\n\r\n`);
      expect([method, path, answer.slice(0, 13)]).toEqual([method, path, 'HTTP/1.1 403 ']);
    }
    expect(await countEffects()).toEqual(effectsBefore);
  });
});

async function send(
  agent: TestAgent,
  method: string,
  path: string,
  headers: Record<string, string>,
  body = '{}',
): Promise<{ status: number; challenge: string | null; body: string }> {
  const hasBody = method !== 'GET' && method !== 'DELETE';
  const response = await agent.fetch(path, {
    method,
    headers: { 'content-type': 'application/json', ...headers },
    ...(hasBody ? { body } : {}),
  });
  return {
    status: response.status,
    challenge: response.headers.get('www-authenticate'),
    body: await response.text(),
  };
}
