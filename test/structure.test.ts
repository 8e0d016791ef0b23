// Checks the repository against the structure rules: allowed imports, one file per
// dependency, no import cycles, no vague file names, no ambient state below the
// composition roots. Every rule also runs on samples that it must refuse.

import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { type Violation, findViolations } from './structure/rules.ts';
import { readSource } from './structure/source.ts';

const root = path.join(import.meta.dirname, '..');

describe('the repository', () => {
  const files = [
    'src/**/*.ts',
    'clients/*/src/**/*.ts',
    'test/**/*.ts',
    'scripts/**/*.ts',
    'examples/**/*.ts',
    'openapi/rules/*.js',
  ]
    .flatMap((pattern) => globSync(pattern, { cwd: root }))
    .map((file) => file.split(path.sep).join('/'))
    .filter((file) => !/^src\/contract\/|\/generated\/|\/node_modules\//.test(file))
    .sort();
  const sources = files.map((file) => readSource(file, readFileSync(path.join(root, file), 'utf8')));

  test('is read completely', () => {
    for (const folder of ['src/kernel/', 'src/gateway/', 'src/agent/', 'scripts/', 'test/'])
      expect(files.filter((file) => file.startsWith(folder)).length, folder).toBeGreaterThan(3);
    expect(sources.flatMap(({ imports }) => imports).length).toBeGreaterThan(100);
  });

  test('follows the structure rules', () => {
    // Redocly requires the default export of a plugin.
    const violations = findViolations(sources).filter(
      ({ place, rule }) => !(rule === 'unwanted' && place.startsWith('openapi/rules/plugin.js:')),
    );
    expect(violations.map(({ place, message }) => `${place} ${message}`)).toEqual([]);
  });
});

/** The violations of a repository with these files. */
function inspect(files: Record<string, string>): Violation[] {
  return findViolations(Object.entries(files).map(([file, text]) => readSource(file, text)));
}

function accepts(title: string, files: Record<string, string>): void {
  test(title, () => expect(inspect(files)).toEqual([]));
}

function refuses(
  title: string,
  rule: string,
  file: string,
  text: string,
  otherFiles: Record<string, string> = {},
): void {
  test(title, () => {
    const violations = inspect({ [file]: text, ...otherFiles });
    expect(violations.map((violation) => violation.rule)).toEqual([rule]);
    expect([file, ...Object.keys(otherFiles)]).toContain(violations[0]?.place.split(':')[0]);
  });
}

describe('imports of the kernel', () => {
  accepts('lets the kernel use node, packages and itself', {
    'src/kernel/a.ts': "import fs from 'node:fs';\nimport x from 'undici';\nimport { b } from './b.ts';",
    'src/kernel/b.ts': 'export const b = 1;',
  });
  accepts('lets the kernel name the problem codes as a type', {
    'src/kernel/problem.ts': "import type { ProblemCode } from '../contract/problem-code.gen.ts';",
  });
  refuses(
    'keeps the kernel from loading the problem codes',
    'imports',
    'src/kernel/problem.ts',
    "import { ProblemCode } from '../contract/problem-code.gen.ts';",
  );
  refuses(
    'counts a type among named imports as loading the module',
    'imports',
    'src/kernel/problem.ts',
    "import { type ProblemCode } from '../contract/problem-code.gen.ts';",
  );
  refuses(
    'keeps the kernel from a service',
    'imports',
    'src/kernel/a.ts',
    "import { b } from '../gateway/service.ts';",
  );
  refuses(
    'keeps a layer of the kernel from the layers above it',
    'imports',
    'src/kernel/data/database.ts',
    "import type { Listener } from '../http/listener.ts';",
  );
  refuses(
    'keeps the kernel from a client',
    'imports',
    'src/kernel/a.ts',
    "import { b } from '@townhall/gateway';",
  );
});

describe('imports of a slice', () => {
  accepts('lets a slice use the kernel, shared files, types and itself', {
    'src/gateway/ai/ai.ts': [
      "import { Problem } from '../../kernel/problem.ts';",
      "import type { Service } from '../service.ts';",
      "import type { Operations } from '../../contract/gateway/operations.gen.ts';",
      "import type { Credits } from '../credits/index.ts';",
      "import { rule } from './rule.ts';",
    ].join('\n'),
  });
  refuses(
    'keeps a slice from loading another',
    'imports',
    'src/gateway/ai/ai.ts',
    "import { hold } from '../credits/index.ts';",
  );
  accepts('lets a slice import the types of a one-file module', {
    'src/gateway/accounts/providers/code-mail.ts': "import type { Mail } from '../../mail.ts';",
  });
  refuses(
    'keeps a slice from loading a one-file module',
    'imports',
    'src/gateway/accounts/providers/code-mail.ts',
    "import { mail } from '../../mail.ts';",
  );
  refuses(
    'keeps a slice from the inside of another, even as a type',
    'imports',
    'src/gateway/ai/ai.ts',
    "import type { Hold } from '../credits/hold.ts';",
  );
  refuses(
    'keeps a slice from the composition root',
    'imports',
    'src/gateway/ai/ai.ts',
    "import { createGateway } from '../compose.ts';",
  );
  refuses(
    'keeps a slice from the bundle of the contract',
    'imports',
    'src/gateway/ai/ai.ts',
    "import bundle from '../../contract/gateway/bundle.json' with { type: 'json' };",
  );
  refuses(
    'keeps a shared file from importing a slice',
    'imports',
    'src/gateway/service.ts',
    "import type { A } from './ai/index.ts';",
  );
  refuses(
    'finds a dynamic import',
    'imports',
    'src/gateway/ai/ai.ts',
    "const late = () => import('../credits/index.ts');",
  );
  refuses(
    'finds an import in a re-export',
    'imports',
    'src/gateway/ai/ai.ts',
    "export { hold } from '../credits/index.ts';",
  );
  refuses(
    'finds an import in a type',
    'imports',
    'src/gateway/ai/ai.ts',
    "type Hold = import('../credits/hold.ts').Hold;",
  );
});

describe('imports of a composition root', () => {
  accepts('lets a composition root import every index and the bundle', {
    'src/gateway/compose.ts': [
      "import { ai } from './ai/index.ts';",
      "import { read } from './config.ts';",
      "import bundle from '../contract/gateway/bundle.json' with { type: 'json' };",
    ].join('\n'),
  });
  refuses(
    'keeps a composition root from the inside of a slice',
    'imports',
    'src/gateway/compose.ts',
    "import { text } from './ai/text.ts';",
  );
});

describe('imports between the surfaces', () => {
  refuses(
    'keeps the agent from the gateway',
    'imports',
    'src/agent/sessions/model-loop/loop.ts',
    "import { Service } from '../../gateway/service.ts';",
  );
  refuses(
    'keeps the gateway from the agent',
    'imports',
    'src/gateway/compose.ts',
    "import { plugins } from '../agent/plugins/index.ts';",
  );
  refuses(
    "keeps a surface from the other's contract",
    'imports',
    'src/gateway/ai/ai.ts',
    "import type { Operations } from '../../contract/agent/operations.gen.ts';",
  );
  accepts("lets the agent use the gateway's client and its own slices", {
    'src/agent/sessions/model-loop/loop.ts':
      "import { createGatewayClient } from '@townhall/gateway';\nimport { call } from '../plugins/index.ts';",
  });
  refuses(
    "keeps the agent's slices from the inside of one another",
    'imports',
    'src/agent/sessions/model-loop/loop.ts',
    "import { call } from '../../plugins/call.ts';",
  );
  refuses(
    'keeps the gateway from its own client',
    'imports',
    'src/gateway/ai/ai.ts',
    "import { createGatewayClient } from '@townhall/gateway';",
  );
});

describe('imports of the cli', () => {
  accepts('lets the cli import public interfaces', {
    'src/cli/gateway.ts': [
      "import { createGateway } from '../gateway/compose.ts';",
      "import { deploy } from '../deploy/index.ts';",
      "import { id } from '../kernel/ids.ts';",
    ].join('\n'),
  });
  refuses(
    'keeps the cli from the inside of a slice',
    'imports',
    'src/cli/gateway.ts',
    "import { text } from '../gateway/ai/text.ts';",
  );
});

describe('imports of clients and examples', () => {
  accepts('lets a client use its own code and the event parser', {
    'clients/gateway/src/client.ts':
      "import { a } from './generated/index.ts';\nimport { createParser } from 'eventsource-parser';",
  });
  refuses(
    'keeps the event parser to the clients',
    'imports',
    'src/kernel/http/sse.ts',
    "import { createParser } from 'eventsource-parser';",
  );
  refuses(
    'keeps a client from src',
    'imports',
    'clients/gateway/src/client.ts',
    "import type { Problem } from '../../../src/kernel/problem.ts';",
  );
  accepts('lets a client use clients/shared and the types of the AI SDK', {
    'clients/gateway/src/client.ts': [
      "import { send } from '../../shared/src/transport.ts';",
      "import type { LanguageModelV3 } from '@ai-sdk/provider';",
    ].join('\n'),
  });
  refuses(
    'keeps a client from another client',
    'imports',
    'clients/agent/src/client.ts',
    "import { a } from '../../gateway/src/client.ts';",
  );
  refuses(
    'keeps a client from loading the AI SDK',
    'imports',
    'clients/gateway/src/client.ts',
    "import { APICallError } from '@ai-sdk/provider';",
  );
  refuses(
    'keeps clients/shared from each client',
    'imports',
    'clients/shared/src/transport.ts',
    "import { a } from '../../gateway/src/client.ts';",
  );
  refuses(
    'keeps a client from further packages',
    'imports',
    'clients/gateway/src/client.ts',
    "import ky from 'ky';",
  );
  refuses(
    'keeps an example from src',
    'imports',
    'examples/chat.ts',
    "import { createGateway } from '../src/gateway/compose.ts';",
  );
});

describe('imports of tests', () => {
  refuses(
    'keeps src from the tests',
    'imports',
    'src/gateway/ai/ai.ts',
    "import { startGateway } from '../../../test/support/gateway.ts';",
  );
  accepts("lets a test import its own slice's files", {
    'test/gateway/ai/reasoning.test.ts': [
      "import { check } from '../../../src/gateway/ai/reasoning.ts';",
      "import { startGateway } from '../../support/gateway.ts';",
    ].join('\n'),
  });
  refuses(
    "keeps a test from another slice's files",
    'imports',
    'test/gateway/ai/reasoning.test.ts',
    "import { hold } from '../../../src/gateway/credits/hold.ts';",
  );
});

describe('imports from a folder above', () => {
  refuses(
    'are refused in a slice, even as a type',
    'imports',
    'src/gateway/payments/providers/stripe.ts',
    "import type { Order } from '../order.ts';",
  );
  refuses(
    'are refused over two folders',
    'imports',
    'src/agent/sessions/runs/parts/run.ts',
    "import { step } from '../../step.ts';",
  );
  refuses(
    'are refused in scripts',
    'imports',
    'scripts/docs/browser/portal.ts',
    "import { searchOptions } from '../search-index.ts';",
  );
  accepts('may name the files that a surface or the kernel shares', {
    'src/gateway/accounts/login/login.ts': "import type { Identity } from '../../identity.ts';",
    'src/kernel/data/jobs.ts': "import { Problem } from '../problem.ts';",
  });
  accepts('do not include subfolders and their neighbors', {
    'src/gateway/payments/payments.ts': "import { stripe } from './providers/stripe.ts';",
    'src/gateway/payments/providers/stripe.ts': "import type { Order } from '../orders/order.ts';",
  });
});

describe('package importers', () => {
  accepts('lets the listed file import its package', {
    'src/kernel/http/request-handler.ts': "import express from 'express';",
    'src/kernel/data/embedded/cluster.ts': "import { NodeFS } from '@electric-sql/pglite/nodefs';",
  });
  for (const name of [
    'express',
    'openapi-backend',
    'ajv/dist/2020.js',
    'postgres',
    '@electric-sql/pglite',
    'pg-boss',
    'pino',
  ]) {
    refuses(
      `keeps other files from importing ${name}`,
      'package-importers',
      'src/gateway/ai/ai.ts',
      `import type { X } from '${name}';`,
    );
  }
});

describe('import cycles', () => {
  refuses('are found in two files', 'loops', 'src/kernel/a.ts', "import { b } from './b.ts';", {
    'src/kernel/b.ts': "import { a } from './a.ts';",
  });
  test('are found across three files of type imports', () => {
    const violations = inspect({
      'src/kernel/a.ts': "import type { B } from './b.ts';",
      'src/kernel/b.ts': "import type { C } from './c.ts';",
      'src/kernel/c.ts': "export type { A } from './a.ts';",
    });
    expect(violations).toEqual([
      {
        rule: 'loops',
        place: 'src/kernel/c.ts',
        message: 'src/kernel/a.ts -> src/kernel/b.ts -> src/kernel/c.ts -> src/kernel/a.ts',
      },
    ]);
  });
  accepts('are not two ways to one file', {
    'src/kernel/a.ts': "import './b.ts';\nimport './c.ts';",
    'src/kernel/b.ts': "import './c.ts';",
    'src/kernel/c.ts': '',
  });
});

describe('tables', () => {
  accepts("are named by their slice's store", {
    'src/gateway/accounts/store.ts': [
      'const find = (sql) => sql`',
      '  select * from gateway.accounts_users where created_at < gateway.townhall_now()`;',
    ].join('\n'),
  });
  accepts('are named by one of several stores of a slice', {
    'src/gateway/accounts/attempt-limits-store.ts':
      'const count = (sql) => sql`select used from gateway.accounts_throttles`;',
  });
  refuses(
    'are not named by restore.ts, which only ends in "store.ts"',
    'tables',
    'src/gateway/accounts/restore.ts',
    'const find = (sql) => sql`select * from gateway.accounts_users`;',
  );
  accepts('may be mentioned in comments', {
    'src/gateway/ai/ai.ts': '// The row of gateway.accounts_users is not touched.',
  });
  refuses(
    'are not named elsewhere',
    'tables',
    'src/gateway/accounts/accounts.ts',
    'const find = (sql, id) => sql`select * from gateway.accounts_users where id = ${id}`;',
  );
  refuses(
    'are not named by another store',
    'tables',
    'src/gateway/ai/jobs/store.ts',
    "const text = 'delete from gateway.accounts_users';",
  );
  refuses(
    'are not named by the kernel',
    'tables',
    'src/kernel/data/jobs.ts',
    "const text = 'delete from agent.sessions_events';",
  );
});

describe('file names', () => {
  for (const name of ['util', 'utils', 'helper', 'helpers', 'common', 'manager', 'misc', 'types'])
    refuses(`refuse "${name}" for a file`, 'names', `src/kernel/${name}.ts`, '');
  refuses('refuse "utils" for a folder', 'names', 'src/gateway/utils/price.ts', '');
  refuses('are in kebab-case', 'names', 'src/kernel/rateLimits.ts', '');
});

describe('ambient state', () => {
  accepts('is read by composition roots and the clock', {
    'src/cli/main.ts': 'process.env.PORT; Date.now();',
    'src/gateway/compose.ts': 'fetch("http://127.0.0.1");',
    'src/kernel/clock.ts': 'export const clock = { now: () => new Date(), ms: () => Date.now() };',
  });
  accepts('may be passed in', {
    'src/gateway/ai/provider.ts': 'export const call = ({ fetch }) => fetch("/x");\nconst at = new Date(0);',
  });
  for (const text of [
    'process.env.PORT',
    'process.env',
    'Date.now()',
    'new Date()',
    'fetch("/x")',
    'globalThis.fetch("/x")',
  ]) {
    refuses(
      `is refused below a root: ${text}`,
      'ambient',
      'src/gateway/ai/ai.ts',
      `const x = () => ${text};`,
    );
  }
  refuses('is refused in the clock, except for time', 'ambient', 'src/kernel/clock.ts', 'process.env.TZ;');
});

describe('unwanted syntax', () => {
  for (const text of [
    'export default 1;',
    'export default function f() {}',
    'export default class A {}',
    'const a = 1; export { a as default };',
    'enum A { b }',
    'const enum A { b }',
    'namespace A { export const b = 1; }',
  ]) {
    refuses(`is refused: ${text}`, 'unwanted', 'src/kernel/a.ts', text);
  }
  accepts('does not include ambient declarations', {
    'src/kernel/a.ts':
      "declare global { interface Window { a: 1 } }\ndeclare module 'x' { export const a: number; }",
  });
});
