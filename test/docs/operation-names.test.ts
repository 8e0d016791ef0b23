// Every operation that a guide names in code, such as `sessions.list`, is in the contract.
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { type Document, operationsOf } from '../../scripts/generate/document.ts';
import { surfaces } from '../../scripts/generate/surfaces.ts';

const root = path.join(import.meta.dirname, '../..');
const ids = new Set(
  surfaces.flatMap(({ name }) =>
    operationsOf(
      JSON.parse(readFileSync(path.join(root, 'src/contract', name, 'bundle.json'), 'utf8')) as Document,
    ).map(({ id }) => id),
  ),
);
const services = [...new Set([...ids].map((id) => id.split('.')[0]))].join('|');
// A call of the OpenAI client, and two actions of the audit log.
const otherNames = ['chat.completions', 'payments.accepted', 'payments.quarantined'];

test('guides name only operations of the contract', () => {
  const names = readdirSync(path.join(root, 'docs/guides')).flatMap((guide) =>
    Array.from(
      readFileSync(path.join(root, 'docs/guides', guide), 'utf8').matchAll(
        new RegExp(`\`((?:${services})\\.[a-z][A-Za-z]+)(?:\\(\\))?\``, 'g'),
      ),
      ([, name = '']) => ({ guide, name }),
    ),
  );
  expect(names.length).toBeGreaterThan(20);
  const unknownNames = names.filter(({ name }) => !ids.has(name) && !otherNames.includes(name));
  expect(unknownNames).toEqual([]);
});
