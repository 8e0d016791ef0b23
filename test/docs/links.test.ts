// The links of the contract: each leads to an operation of the same document and takes its
// parameters from members of the answer.
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { type Body, type Document, operationsOf, resolve } from '../../scripts/generate/document.ts';
import { surfaces } from '../../scripts/generate/surfaces.ts';

interface Link {
  operationId?: string;
  parameters?: Record<string, unknown>;
  requestBody?: Record<string, unknown>;
}

interface LinkedResponse extends Omit<Body, 'content'> {
  links?: Record<string, Link>;
  content?: Record<string, { examples?: Record<string, { value: Record<string, unknown> }> }>;
}

const links = surfaces.flatMap(({ name: surface }) => {
  const file = path.join(import.meta.dirname, '../../src/contract', surface, 'bundle.json');
  const document = JSON.parse(readFileSync(file, 'utf8')) as Document;
  const operations = operationsOf(document);
  return operations.flatMap(({ id, operation }) =>
    Object.entries(operation.responses ?? {}).flatMap(([status, response]) => {
      const { links: responseLinks = {}, content } = resolve(document, response as LinkedResponse);
      const [example] = Object.values(content?.['application/json']?.examples ?? {});
      return Object.entries(responseLinks).map(([name, link]) => ({
        place: `${surface} ${id} ${status} ${name}`,
        link,
        answer: example?.value ?? {},
        target: operations.find((candidate) => candidate.id === link.operationId),
        document,
      }));
    }),
  );
});

describe('the links of the contract', () => {
  test('include links of jobs, checkouts, logins and prompts', () => {
    const places = links.map(({ place }) => place);
    expect(places).toEqual(
      expect.arrayContaining([
        'gateway ai.createImage 202 getImage',
        'gateway ai.startVideo 202 getVideo',
        'gateway payments.createCheckout 201 getPayment',
        'gateway accounts.startLogin 200 getLoginResult',
        'agent sessions.prompt 202 getRun',
        'agent sessions.execute 202 getRun',
        'agent-classic sessions.fork 201 prompt',
      ]),
    );
  });

  test.each(links.map((entry) => [entry.place, entry] as const))(
    '%s names members of both sides',
    (_place, { link, answer, target, document }) => {
      expect(target).toBeDefined();
      const parameters = (target?.operation.parameters ?? []).map(
        (parameter) => (resolve(document, parameter) as { name: string }).name,
      );
      expect(parameters).toEqual(expect.arrayContaining(Object.keys(link.parameters ?? {})));
      const body = target?.operation.requestBody as LinkedResponse | undefined;
      const members = Object.values(body?.content?.['application/json']?.examples ?? {}).flatMap(
        ({ value }) => Object.keys(value),
      );
      expect(members).toEqual(expect.arrayContaining(Object.keys(link.requestBody ?? {})));
      for (const expression of Object.values({ ...link.parameters, ...link.requestBody })) {
        const [, member] = /^\$response\.body#\/(\w+)$/.exec(String(expression)) ?? [];
        // A link may also send the literal true, as `cancel` does for a video.
        if (expression !== true) expect(answer[member ?? ''], String(expression)).toEqual(expect.any(String));
      }
    },
  );
});
