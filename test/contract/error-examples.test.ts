// The examples of error codes: one for each code of each operation, in the shape that the operation sends,
// with a message that the servers' code contains.
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { type Document, errorCodesOf, operationsOf, resolve } from '../../scripts/generate/document.ts';
import { addErrorExamples } from '../../scripts/generate/error-examples.ts';
import { surfaces } from '../../scripts/generate/surfaces.ts';

const root = path.join(import.meta.dirname, '../..');

interface ErrorBody {
  type?: string;
  success?: boolean;
  error: {
    type?: string;
    code: string | number;
    message: string;
    details?: { reason?: string }[];
  };
}

function readDocument(name: string): Document {
  return JSON.parse(readFileSync(path.join(root, 'src/contract', name, 'bundle.json'), 'utf8')) as Document;
}

/** The examples of one operation, by status. */
function examplesOf(document: Document, id: string): Map<string, ErrorBody[]> {
  const { operation } = operationsOf(document).find((candidate) => candidate.id === id) ?? {};
  const errors = Object.entries(operation?.responses ?? {}).filter(([status]) => Number(status) >= 400);
  return new Map(
    errors.map(([status, value]) => {
      const response = resolve(document, value) as {
        content?: Record<string, { examples?: Record<string, object> }>;
      };
      const examples = Object.values(response.content?.['application/json']?.examples ?? {});
      return [status, examples.map((example) => (resolve(document, example) as { value: ErrorBody }).value)];
    }),
  );
}

const codeOf = ({ error }: ErrorBody) =>
  typeof error.code === 'number' ? error.details?.[0]?.reason : error.code;

describe.each(surfaces.map(({ name }) => name))('the examples of errors of %s', (name) => {
  const document = readDocument(name);
  const codes = errorCodesOf(document);

  test('are one for each code and status that an operation lists', () => {
    for (const { id, operation } of operationsOf(document)) {
      for (const [status, examples] of examplesOf(document, id)) {
        if (examples.length === 0) continue;
        const codesOfStatus = (operation['x-error-codes'] ?? []).filter((code) =>
          codes[code]?.status.includes(Number(status)),
        );
        expect(examples.map(codeOf), `${id} ${status}`).toEqual(codesOfStatus);
      }
    }
  });

  test('cover every code of an operation that answers JSON', () => {
    const withoutJson = [
      'accounts.receiveOauthCallback',
      'accounts.decideLogin',
      'payments.showSuccess',
      'payments.showCancel',
    ];
    for (const { id, operation } of operationsOf(document)) {
      if (withoutJson.includes(id)) continue;
      const exampleCodes = new Set([...examplesOf(document, id).values()].flat().map(codeOf));
      // Codes of status 200 are in a job's own error, never in an error response.
      const missingCodes = (operation['x-error-codes'] ?? []).filter(
        (code) => !exampleCodes.has(code) && codes[code]?.status[0] !== 200,
      );
      expect(missingCodes, id).toEqual([]);
    }
  });
});

describe('an example of an error', () => {
  const gateway = readDocument('gateway');

  test.each([
    ['gateway', 'ai.generateText', { error: { type: 'invalid_request_error', code: 'model_not_found' } }],
    ['gateway', 'ai.createMessage', { type: 'error', error: { type: 'not_found_error' } }],
    ['gateway', 'ai.generateGeminiContent', { error: { code: 404, status: 'NOT_FOUND' } }],
    ['agent', 'sessions.getRun', { success: false }],
  ])('has the shape of the operation: %s %s', (name, id, shape) => {
    const [example] = examplesOf(readDocument(name), id).get('404') ?? [];
    expect(example).toMatchObject(shape);
  });

  test('has a message that the code of the servers contains', () => {
    const patterns = messagePatterns();
    // The messages about a variable and an amount are joined from a subject and the rest.
    const subject = /^(?:The (?:key|value)|`credits`) /;
    const wrongExamples = Object.entries(errorCodesOf(gateway)).filter(([, { example }]) => {
      const message = example?.message ?? '';
      const texts = [message, message.replace(subject, '')];
      return !patterns.some((pattern) => texts.some((text) => pattern.test(text)));
    });
    // The project's own action writes the message of `service_refused`.
    expect(wrongExamples.map(([code]) => code)).toEqual(['service_refused']);
  });

  test('must fit the schema of its response', () => {
    const document = structuredClone(readDocument('gateway'));
    errorCodesOf(document)['model_not_found'] = {
      status: [404],
      example: { message: 'None.', param: 7 as unknown as string },
    };
    document.components = { ...document.components, examples: {} };
    expect(() => addErrorExamples(document, { name: 'gateway' })).toThrow(
      /model_not_found .* does not fit 404/,
    );
  });

  test('must exist for each code', () => {
    const document = structuredClone(readDocument('gateway'));
    delete errorCodesOf(document)['rate_limited']?.example;
    document.components = { ...document.components, examples: {} };
    expect(() => addErrorExamples(document, { name: 'gateway' })).toThrow('rate_limited has no example');
  });
});

/**
 * Each text of the sources with at least two words, as a pattern in which `${…}` stands for anything.
 * Literals that `+` joins are one text.
 */
function messagePatterns(): RegExp[] {
  const escape = (text: string) => text.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`);
  const literal = /'(?:[^'\\\n]|\\.)+'|`(?:[^`\\]|\\.)+`|"(?:[^"\\\n]|\\.)+"/g;
  const joinedLiterals = new RegExp(`(?:${literal.source})(?:\\s*\\+\\s*(?:${literal.source}))*`, 'g');
  return globSync('src/**/*.ts', { cwd: root })
    .filter((file) => !file.endsWith('.gen.ts'))
    .flatMap((file) => readFileSync(path.join(root, file), 'utf8').match(joinedLiterals) ?? [])
    .map((joined) => (joined.match(literal) ?? []).map((text) => text.slice(1, -1)).join(''))
    .filter((text) => /\w{2}.* \w{2}/.test(text.replaceAll(/\$\{[^}]*\}/g, '')))
    .map((text) => {
      const parts = text.replaceAll(String.raw`\``, '`').split(/\$\{(?:[^{}]|\{[^}]*\})*\}/);
      return new RegExp(`^${parts.map(escape).join('.*')}[.]?$`);
    });
}
