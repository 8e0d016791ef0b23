// The generator declares headers that classes of responses share. A header that a server sends
// undeclared fails in tests (src/kernel/contract/reply-validator.ts).
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import agentBundle from '../../src/contract/agent/bundle.json' with { type: 'json' };
import gatewayBundle from '../../src/contract/gateway/bundle.json' with { type: 'json' };
import { type Document, operationsOf, resolve } from '../../scripts/generate/document.ts';
import { addSharedHeaders } from '../../scripts/generate/headers.ts';

const folder = path.join(import.meta.dirname, '../../openapi/shared/headers');
const agent = agentBundle as unknown as Document;
const gateway = gatewayBundle as unknown as Document;

function headersOf(document: Document, operationId: string, status: string): string[] {
  const operation = operationsOf(document).find(({ id }) => id === operationId)?.operation;
  const response = resolve(document, operation?.responses?.[status] ?? {});
  return Object.keys(response.headers ?? {});
}

describe('the shared headers', () => {
  test('include rate limits only where the gateway counts calls', () => {
    expect(headersOf(gateway, 'ai.listModels', '200')).toContain('ratelimit');
    expect(headersOf(gateway, 'directory.getHealth', '200')).not.toContain('ratelimit');
  });

  test('include no rate limits of the agent', () => {
    expect(JSON.stringify(agent.components?.headers)).not.toContain('RateLimit');
    expect(headersOf(agent, 'sessions.prompt', '429')).not.toContain('ratelimit');
  });

  test('include the replay header only for calls with a key', () => {
    expect(headersOf(gateway, 'ai.generateText', '200')).toContain('idempotent-replayed');
    expect(headersOf(gateway, 'ai.listModels', '200')).not.toContain('idempotent-replayed');
  });

  test('include the attempts of a failed model call', () => {
    expect(headersOf(gateway, 'ai.generateText', '502')).toContain('x-townhall-attempts');
  });

  test('include the applied preference of a prompt', () => {
    expect(headersOf(agent, 'sessions.prompt', '202')).toContain('preference-applied');
  });

  test('are components of the document that refers to them', () => {
    const document = {
      paths: { '/v1/things': { get: { operationId: 'things.list', responses: { '401': {} } } } },
    } as unknown as Document;
    addSharedHeaders(document, { name: 'agent' }, folder);
    expect(document.components?.headers).toHaveProperty('WwwAuthenticate');
    expect(headersOf(document, 'things.list', '401')).toContain('www-authenticate');
  });
});
