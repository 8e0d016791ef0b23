// Tests the lint of absent routes: it distinguishes served routes, absent routes and routes with
// another method.
import { describe, expect, test } from 'vitest';
import { compareRoutes, specifiedRoutes } from '../../scripts/absent-routes.ts';
import type { Document } from '../../scripts/generate/document.ts';

function documentServing(...lines: string[]): Document {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const line of lines) {
    const [method = '', path = ''] = line.split(' ');
    paths[path] = {
      ...paths[path],
      [method.toLowerCase()]: { operationId: `sample.get${Object.keys(paths).length}` },
    };
  }
  return { paths };
}

describe('the lint of absent routes', () => {
  test('lists each planned route once per document', () => {
    const labels = specifiedRoutes.flatMap((route) =>
      route.documents.map((name) => `${name} ${route.method} ${route.path}`),
    );
    expect(new Set(labels).size).toBe(labels.length);
    // The numbers of planned routes, so that no row of the list gets lost.
    expect(labels.filter((label) => label.startsWith('gateway '))).toHaveLength(30);
    expect(labels.filter((label) => label.startsWith('agent '))).toHaveLength(20);
    expect(labels.filter((label) => label.startsWith('agent-classic '))).toHaveLength(19);
  });

  test('matches a route by any parameter name', () => {
    const comparison = compareRoutes({ agent: documentServing('POST /api/sdk/sessions/{id}/fork') });
    expect(comparison.present).toEqual(['agent: POST /api/sdk/sessions/{sessionId}/fork']);
    expect(comparison.absent).toContain('agent-classic: POST /api/sdk/sessions/{sessionId}/fork');
  });

  test('reports a route with another method as wrongMethod', () => {
    const comparison = compareRoutes({ gateway: documentServing('GET /v1/ai/text') });
    expect(comparison.wrongMethod).toEqual(['gateway: POST /v1/ai/text (has GET)']);
    expect(comparison.absent).not.toContain('gateway: POST /v1/ai/text');
  });

  test('accepts further methods and partly served paths', () => {
    const comparison = compareRoutes({
      gateway: documentServing('POST /v1/ai/video', 'GET /v1/ai/video'),
      agent: documentServing('GET /api/sdk/sessions'),
    });
    expect(comparison.wrongMethod).toEqual([]);
    expect(comparison.present).toEqual(['gateway: POST /v1/ai/video', 'agent: GET /api/sdk/sessions']);
    expect(comparison.absent).toContain('agent: POST /api/sdk/sessions');
  });
});
