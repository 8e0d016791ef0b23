// Tests every lint rule of the contract: it reports a bad document and accepts a good one. All
// samples are linted in one run of the real tool under the project's redocly.yaml, so a rule that
// was switched off fails.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runRedocly } from '../../scripts/generate/tools.ts';

type Json = string | number | boolean | null | Json[] | { [member: string]: Json };
type Files = Record<string, Json>;
interface Finding {
  ruleId: string;
  message: string;
}

const repository = path.join(import.meta.dirname, '../..');
const folder = mkdtempSync(path.join(tmpdir(), 'townhall-lint-'));
const samples = new Map<string, Files>();
const findings = new Map<string, Finding[]>();

beforeAll(async () => {
  const roots = [...samples.keys()].map(
    (name) => `  ${name}:\n    root: ${name}/${samples.get(name)?.root as string}\n`,
  );
  for (const [name, files] of samples) {
    findings.set(name, []);
    for (const [file, content] of Object.entries(files)) {
      if (file === 'root') continue;
      const target = path.join(folder, name, file);
      mkdirSync(path.dirname(target), { recursive: true });
      writeFileSync(target, JSON.stringify(content));
    }
  }
  const config = readFileSync(path.join(repository, 'redocly.yaml'), 'utf8');
  const sampleConfig = config
    .replace(/^apis:\n(?: .*\n)+/m, `apis:\n${roots.join('')}`)
    .replace('openapi/rules/plugin.js', path.join(repository, 'openapi/rules/plugin.js'))
    // The samples are small: one member without a description is a tenth of a document.
    .replace(/^( {4}(?:gateway|agent|agent-classic): )\d+$/gm, (_line, name: string) => `${name}50`);
  writeFileSync(path.join(folder, 'redocly.yaml'), sampleConfig);
  const { stdout, stderr } = await runRedocly(folder, ['lint', '--format=json', '--max-problems=1000']);
  const lintedApis = Array.from(stderr.matchAll(/using lint rules for api '([\w-]+)'/g), (match) => match[1]);
  expect(
    lintedApis.toSorted((a, b) => String(a).localeCompare(String(b))),
    stderr,
  ).toEqual([...samples.keys()].toSorted((a, b) => a.localeCompare(b)));
  // Redocly prints one JSON document after another without a separator.
  for (const report of stdout.replaceAll(/^\}\{$/gm, '}\0{').split('\0')) {
    for (const problem of (
      JSON.parse(report) as { problems: (Finding & { location: { source: { ref: string } }[] })[] }
    ).problems) {
      const sample = problem.location[0]?.source.ref.split('/')[0] ?? '';
      findings.get(sample)?.push({ ruleId: problem.ruleId, message: problem.message });
    }
  }
}, 120_000);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A document without a finding; each bad sample changes a little of it. */
function goodFiles(): Files {
  const problem = { $ref: '../../shared/responses/Refused.yaml' };
  return {
    root: 'openapi/gateway/openapi.yaml',
    'openapi/gateway/openapi.yaml': {
      openapi: '3.1.1',
      info: {
        title: 'Sample',
        version: '1.0.0',
        description: 'A sample.',
        license: { name: 'MIT', identifier: 'MIT' },
      },
      servers: [{ url: 'http://127.0.0.1:1', description: 'Here.' }],
      tags: [
        {
          name: 'bureaus',
          description:
            'The tenants of this sample, each with an entrypoint. Begin with pausing one, since nothing ' +
            'else can be done with them here.',
        },
      ],
      paths: {
        '/v1/bureaus/pause': { $ref: './bureaus/pause.yaml' },
        '/v1/bureaus/events': { $ref: './bureaus/events.yaml' },
      },
      components: {
        securitySchemes: {
          adminSession: { type: 'http', scheme: 'bearer', description: 'An administrator.' },
        },
      },
    },
    'openapi/gateway/bureaus/pause.yaml': {
      post: {
        operationId: 'bureaus.pauseBureau',
        summary: 'Pause a Bureau',
        description: 'Pauses it.',
        tags: ['bureaus'],
        security: [{ adminSession: [] }],
        parameters: [
          {
            name: 'Idempotency-Key',
            in: 'header',
            description: 'A key.',
            schema: { type: 'string' },
            example: 'k1',
          },
        ],
        requestBody: {
          required: true,
          content: {
            'application/json': {
              schema: { $ref: './schemas/PauseRequest.yaml' },
              examples: { one: { value: { bureau_id: 'b1' } } },
            },
          },
        },
        responses: {
          '200': {
            description: 'Paused.',
            content: { 'application/json': { schema: { $ref: './schemas/Bureau.yaml' } } },
          },
          '400': problem,
          '401': problem,
          '403': problem,
          '429': problem,
          '500': problem,
        },
      },
    },
    'openapi/gateway/bureaus/events.yaml': {
      get: {
        operationId: 'bureaus.followEvents',
        summary: 'Follow events',
        description: 'Follows them.',
        tags: ['bureaus'],
        security: [],
        parameters: [
          {
            name: 'after_event',
            in: 'query',
            description: 'Where to begin.',
            schema: { type: 'string' },
            example: 'e1',
          },
        ],
        responses: {
          '200': {
            description: 'Events.',
            content: { 'text/event-stream': { schema: { $ref: './schemas/BureauEvent.yaml' } } },
          },
          '401': problem,
          '403': problem,
          '404': problem,
          '429': problem,
          '500': problem,
        },
      },
    },
    'openapi/gateway/bureaus/schemas/PauseRequest.yaml': {
      type: 'object',
      required: ['bureau_id'],
      properties: { bureau_id: { $ref: '../../../shared/schemas/BureauId.yaml' } },
      additionalProperties: false,
    },
    'openapi/gateway/bureaus/schemas/Bureau.yaml': {
      type: 'object',
      properties: {
        bureau_id: { $ref: '../../../shared/schemas/BureauId.yaml' },
        raw: { $ref: './ForeignThing.yaml' },
      },
      example: { bureau_id: 'b1' },
    },
    'openapi/gateway/bureaus/schemas/ForeignThing.yaml': {
      type: 'object',
      'x-foreign': true,
      description: 'In the format of somebody else.',
      properties: {
        finishReason: {
          type: 'object',
          description: 'Why it ended.',
          properties: { theInner: { type: 'string', description: 'Their own word.' } },
        },
      },
    },
    'openapi/gateway/bureaus/schemas/BureauEvent.yaml': {
      oneOf: [{ $ref: './BureauPaused.yaml' }, { $ref: './BureauOther.yaml' }],
      discriminator: {
        propertyName: 'type',
        mapping: {
          paused: './BureauPaused.yaml',
          archived: './BureauOther.yaml',
          activated: './BureauOther.yaml',
        },
      },
    },
    'openapi/gateway/bureaus/schemas/BureauPaused.yaml': {
      type: 'object',
      required: ['type'],
      properties: { type: { type: 'string', const: 'paused' } },
    },
    'openapi/gateway/bureaus/schemas/BureauOther.yaml': {
      allOf: [
        {
          type: 'object',
          required: ['type'],
          properties: {
            type: { type: 'string', description: 'What came of it.', enum: ['archived', 'activated'] },
          },
        },
        {
          type: 'object',
          properties: { bureau_id: { $ref: '../../../shared/schemas/BureauId.yaml' } },
        },
      ],
    },
    'openapi/shared/responses/Refused.yaml': {
      description: 'Refused.',
      content: {
        'application/json': {
          schema: { $ref: '../schemas/Problem.yaml' },
          examples: { one: { value: { request_id: 'r1' } } },
        },
      },
    },
    'openapi/shared/schemas/Problem.yaml': {
      type: 'object',
      properties: { request_id: { type: 'string', description: 'Quote it when you ask for help.' } },
    },
    'openapi/shared/schemas/BureauId.yaml': { type: 'string', description: 'A Bureau.' },
  };
}

/** A document of the agent without a finding, with the agent's member names. */
function goodAgentFiles(): Files {
  const files = goodFiles();
  files.root = 'openapi/agent/openapi.yaml';
  for (const [file, content] of Object.entries(files)) {
    if (!file.startsWith('openapi/gateway/')) continue;
    delete files[file];
    files[file.replace('openapi/gateway/', 'openapi/agent/')] = content;
  }
  return JSON.parse(
    JSON.stringify(files).replaceAll('bureau_id', 'plugin_name').replaceAll('after_event', 'afterEvent'),
  ) as Files;
}

/** Changes one member of a sample by file and path; undefined removes it. */
function change(files: Files, file: string, members: (string | number)[], value: Json | undefined): Files {
  let node = files[file] as Record<string | number, Json>;
  for (const member of members.slice(0, -1)) node = node[member] as Record<string | number, Json>;
  const lastMember = members.at(-1) as string | number;
  if (value === undefined) delete node[lastMember];
  else node[lastMember] = value;
  return files;
}

/** Registers a sample while tests are collected; one lint run covers all before the first test. */
function sample(name: string, files: Files): () => Finding[] {
  samples.set(name, files);
  return () => findings.get(name) ?? [];
}

const pause = 'openapi/gateway/bureaus/pause.yaml';
const events = 'openapi/gateway/bureaus/events.yaml';
const schemas = 'openapi/gateway/bureaus/schemas';
const document = 'openapi/gateway/openapi.yaml';

/** Expects the rule to report the sample, and no other rule except `also`. */
function refuses(
  title: string,
  ruleId: string,
  message: RegExp,
  name: string,
  files: Files,
  { also }: { also?: string } = {},
): void {
  const read = sample(name, files);
  test(title, () => {
    const problems = read();
    expect(problems.map((finding) => finding.ruleId)).toContain(ruleId);
    const otherProblems = problems.filter((finding) => ![ruleId, also].includes(finding.ruleId));
    expect(otherProblems).toEqual([]);
    expect(problems.map((finding) => finding.message).join('\n')).toMatch(message);
  });
}

describe('a good document', () => {
  const gateway = sample('good-gateway', goodFiles());
  const agent = sample('good-agent', goodAgentFiles());
  test('has no finding at the gateway', () => expect(gateway()).toEqual([]));
  test('has no finding at the agent', () => expect(agent()).toEqual([]));
});

describe('townhall/operation-name', () => {
  const withOperationId = (name: string) => change(goodFiles(), pause, ['post', 'operationId'], name);
  const rule = 'townhall/operation-name';
  refuses(
    'refuses an operationId without a service',
    rule,
    /shape service.verbNoun/,
    'name-shape',
    withOperationId('pauseBureau'),
  );
  refuses(
    'refuses an operationId with a digit or an underscore',
    rule,
    /shape service.verbNoun/,
    'name-letters',
    withOperationId('bureaus.pause_bureau2'),
  );
  refuses(
    'refuses a service that is not the tag',
    rule,
    /one word/,
    'name-tag',
    withOperationId('tenants.pauseBureau'),
  );
  refuses(
    'refuses a verb that is not in the table',
    rule,
    /"freeze".*verbs.js/,
    'name-verb',
    withOperationId('bureaus.freezeBureau'),
  );
  refuses(
    'refuses a verb that does not fit the method',
    rule,
    /is a POST, but "list"/,
    'name-method',
    withOperationId('bureaus.listBureaus'),
  );
  test('gives each verb a meaning of its own', async () => {
    const { verbs } = (await import(path.join(repository, 'openapi/rules/verbs.js'))) as {
      verbs: Record<string, { meaning: string; methods: string[] }>;
    };
    const meanings = Object.values(verbs).map(({ meaning }) => meaning);
    expect(new Set(meanings).size).toBe(meanings.length);
    expect(Object.keys(verbs).every((verb) => /^[a-z]+$/.test(verb))).toBe(true);
  });
});

describe('townhall/own-security', () => {
  const rule = 'townhall/own-security';
  refuses(
    'refuses a default for the whole document',
    rule,
    /must not declare security; each operation/,
    'security-default',
    change(goodFiles(), document, ['security'], [{ adminSession: [] }]),
  );
  refuses(
    'refuses a requirement that names no scheme',
    rule,
    /exactly one scheme/,
    'security-empty',
    change(goodFiles(), pause, ['post', 'security'], [{ adminSession: [] }, {}]),
  );
  refuses(
    'refuses a scope that its scheme does not explain',
    rule,
    /names the scope bureaus.pause, which adminSession does not explain/,
    'security-scope',
    change(goodFiles(), pause, ['post', 'security'], [{ adminSession: ['bureaus.pause'] }]),
  );
  refuses(
    'refuses a scheme with scopes without one of them',
    rule,
    /needs a scope of adminSession: bureaus.pause/,
    'security-scopeless',
    change(goodFiles(), document, ['components', 'securitySchemes', 'adminSession', 'x-scopes'], {
      'bureaus.pause': 'Pauses Bureaus.',
    }),
  );
  const optionalSample = sample(
    'security-optional',
    change(goodFiles(), pause, ['post', 'security'], [{}, { adminSession: [] }]),
  );
  test('accepts an optional credential', () => expect(optionalSample()).toEqual([]));
  const documentWithout = sample(
    'security-absent',
    change(goodFiles(), pause, ['post', 'security'], undefined),
  );
  test('refuses an operation without security', () => {
    expect(documentWithout().map((finding) => finding.ruleId)).toContain(rule);
  });
});

describe('townhall/error-responses', () => {
  const rule = 'townhall/error-responses';
  for (const status of ['400', '401', '403', '429', '500']) {
    refuses(
      `refuses an operation with an identity and without ${status}`,
      rule,
      new RegExp(`does not list ${status}`),
      `errors-${status}`,
      change(goodFiles(), pause, ['post', 'responses', status], undefined),
    );
  }
  for (const status of ['401', '403', '429', '500']) {
    refuses(
      `refuses an open operation without ${status}, which callers with a credential need`,
      rule,
      new RegExp(`does not list ${status}`),
      `errors-open-${status}`,
      change(goodFiles(), events, ['get', 'responses', status], undefined),
    );
  }
  refuses(
    'refuses a range of statuses instead of a number',
    rule,
    /lists "5XX"/,
    'errors-range',
    change(goodFiles(), events, ['get', 'responses', '5XX'], { $ref: '../../shared/responses/Refused.yaml' }),
  );
});

describe('townhall/example-required', () => {
  const rule = 'townhall/example-required';
  refuses(
    'refuses a request body without an example',
    rule,
    /the request body has no example/,
    'example-request',
    change(goodFiles(), pause, ['post', 'requestBody', 'content', 'application/json', 'examples'], undefined),
  );
  refuses(
    'refuses an answer without an example',
    rule,
    /status 200 has no example/,
    'example-answer',
    change(goodFiles(), `${schemas}/Bureau.yaml`, ['example'], undefined),
  );
  refuses(
    'refuses an error without an example',
    rule,
    /status 403 has no example/,
    'example-error',
    change(
      goodFiles(),
      'openapi/shared/responses/Refused.yaml',
      ['content', 'application/json', 'examples'],
      undefined,
    ),
  );
});

describe('townhall/component-file-unique', () => {
  const filesWithDuplicate = goodFiles();
  filesWithDuplicate['openapi/agent/sessions/schemas/Bureau.yaml'] = { type: 'object' };
  refuses(
    'refuses one name on two surfaces',
    'townhall/component-file-unique',
    /schemas\/Bureau is used 2 times: agent\/.*, gateway\//,
    'unique-twice',
    filesWithDuplicate,
  );
});

describe('townhall/event-union', () => {
  const rule = 'townhall/event-union';
  refuses(
    'refuses a stream whose schema is not a union',
    rule,
    /neither a oneOf nor marked/,
    'events-plain',
    change(
      goodFiles(),
      events,
      ['get', 'responses', '200', 'content', 'text/event-stream', 'schema', '$ref'],
      './schemas/BureauPaused.yaml',
    ),
  );
  refuses(
    'refuses a schema without a file',
    rule,
    /no schema in a file of their own/,
    'events-inline',
    change(goodFiles(), events, ['get', 'responses', '200', 'content', 'text/event-stream', 'schema'], {
      type: 'object',
      'x-foreign': true,
    }),
  );
  refuses(
    'refuses a member without a const type',
    rule,
    /member 1 .* no required `type`/,
    'events-untyped',
    change(goodFiles(), `${schemas}/BureauPaused.yaml`, ['properties', 'type'], {
      type: 'string',
      description: 'Anything.',
    }),
    { also: 'townhall/union-members' },
  );
  refuses(
    'refuses a member whose type may be absent',
    rule,
    /member 1 .* no required `type`/,
    'events-optional',
    change(goodFiles(), `${schemas}/BureauPaused.yaml`, ['required'], []),
    { also: 'townhall/union-members' },
  );
  refuses(
    'refuses two members of one type',
    rule,
    /two members .* "archived"/,
    'events-same',
    change(goodFiles(), `${schemas}/BureauPaused.yaml`, ['properties', 'type', 'const'], 'archived'),
    { also: 'townhall/union-members' },
  );
  const foreignSample = sample(
    'events-foreign',
    change(
      change(
        goodFiles(),
        events,
        ['get', 'responses', '200', 'content', 'text/event-stream', 'schema', '$ref'],
        './schemas/BureauPaused.yaml',
      ),
      `${schemas}/BureauPaused.yaml`,
      ['x-foreign'],
      true,
    ),
  );
  test('accepts any stream of a third-party format', () => expect(foreignSample()).toEqual([]));
});

describe('townhall/wire-names', () => {
  const rule = 'townhall/wire-names';
  refuses(
    'refuses camelCase at the gateway',
    rule,
    /member bureauId is not in snake_case/,
    'names-gateway',
    change(goodFiles(), `${schemas}/Bureau.yaml`, ['properties', 'bureauId'], { type: 'string' }),
  );
  refuses(
    'refuses camelCase in a query',
    rule,
    /parameter afterEvent is not in snake_case/,
    'names-query',
    change(goodFiles(), events, ['get', 'parameters', 0, 'name'], 'afterEvent'),
  );
  refuses(
    'refuses snake_case at the agent',
    rule,
    /member session_id is not in camelCase/,
    'names-agent',
    change(goodAgentFiles(), 'openapi/agent/bureaus/schemas/Bureau.yaml', ['properties', 'session_id'], {
      type: 'string',
    }),
  );
  refuses(
    'refuses camelCase in what both share',
    rule,
    /member requestId is not in snake_case/,
    'names-shared',
    change(goodFiles(), 'openapi/shared/schemas/Problem.yaml', ['properties', 'requestId'], {
      type: 'string',
    }),
  );
  refuses(
    'reports a foreign schema once its exemption is removed',
    rule,
    /member finishReason/,
    'names-unmarked',
    change(goodFiles(), `${schemas}/ForeignThing.yaml`, ['x-foreign'], undefined),
  );
});

describe('townhall/union-members', () => {
  const rule = 'townhall/union-members';
  const union = `${schemas}/BureauEvent.yaml`;
  refuses(
    'refuses an object without a name in a union',
    rule,
    /Member 2 of the union is an object without a name/,
    'union-inline',
    change(exclusiveFiles(), `${schemas}/Bureau.yaml`, ['anyOf', 1], exclusiveMember('number')),
  );
  refuses(
    'refuses a type beside a union',
    rule,
    /`type` beside `oneOf`/,
    'union-type',
    change(goodFiles(), union, ['type'], 'object'),
  );
  refuses(
    'refuses a union of objects without a discriminator',
    rule,
    /needs a `discriminator` with a `mapping`/,
    'union-plain',
    change(goodFiles(), union, ['discriminator'], undefined),
  );
  refuses(
    'refuses a mapping that leaves out a value',
    rule,
    /does not name "activated"/,
    'union-mapping',
    change(goodFiles(), union, ['discriminator', 'mapping', 'activated'], undefined),
  );
  refuses(
    'refuses a mapping that points to another member',
    rule,
    /does not lead from "paused" to BureauPaused.yaml/,
    'union-target',
    change(goodFiles(), union, ['discriminator', 'mapping', 'paused'], './BureauOther.yaml'),
  );
  refuses(
    'refuses a mapping that swaps two members',
    rule,
    /does not lead from "paused" to BureauPaused.yaml[^]*does not lead from "archived" to BureauOther.yaml/,
    'union-swapped',
    change(goodFiles(), union, ['discriminator', 'mapping'], {
      paused: './BureauOther.yaml',
      archived: './BureauPaused.yaml',
      activated: './BureauOther.yaml',
    }),
  );
  refuses(
    'refuses an object without a tag in a union with a discriminator',
    rule,
    /ByNumber.yaml does not require `kind`/,
    'union-untagged',
    change(openFiles(), `${schemas}/Bureau.yaml`, ['discriminator'], {
      propertyName: 'kind',
      mapping: { name: './ByName.yaml', number: './ByNumber.yaml' },
    }),
  );
  const alternatives = sample('union-exclusive', exclusiveFiles());
  test('accepts mutually exclusive objects in a union', () => expect(alternatives()).toEqual([]));
  const lintOpenUnion = sample('union-open', openFiles());
  test('accepts one object with other tags in a union', () => expect(lintOpenUnion()).toEqual([]));
  refuses(
    'refuses a second object without a tag',
    rule,
    /needs a `discriminator` with a `mapping`/,
    'union-open-twice',
    change(openFiles(), `${schemas}/ByName.yaml`, ['properties', 'kind', 'const'], undefined),
  );
  refuses(
    'refuses an object without a tag beside a union with another',
    rule,
    /needs a `discriminator` with a `mapping`/,
    'union-open-nested',
    nestedOpenFiles(),
  );
});

function openFiles(): Files {
  const member = (kind: Json): Json => ({
    type: 'object',
    required: ['kind'],
    properties: { kind },
    additionalProperties: true,
  });
  return {
    ...exclusiveFiles(),
    [`${schemas}/Bureau.yaml`]: {
      anyOf: [{ $ref: './ByName.yaml' }, { $ref: './ByNumber.yaml' }],
      example: { kind: 'name' },
    },
    [`${schemas}/ByName.yaml`]: member({ type: 'string', const: 'name' }),
    [`${schemas}/ByNumber.yaml`]: member({ type: 'string' }),
  };
}

function nestedOpenFiles(): Files {
  const files = openFiles();
  const { anyOf } = files[`${schemas}/Bureau.yaml`] as { anyOf: Json };
  return {
    ...files,
    [`${schemas}/NameOrNumber.yaml`]: { anyOf },
    [`${schemas}/ByPlace.yaml`]: {
      type: 'object',
      properties: { place: { type: 'string', description: 'The city.' } },
    },
    [`${schemas}/Bureau.yaml`]: {
      anyOf: [{ $ref: './NameOrNumber.yaml' }, { $ref: './ByPlace.yaml' }],
      example: { kind: 'name' },
    },
  };
}

function exclusiveFiles(): Files {
  return {
    ...goodFiles(),
    [`${schemas}/Bureau.yaml`]: {
      anyOf: [{ $ref: './ByName.yaml' }, { $ref: './ByNumber.yaml' }],
      example: { name: 'b1' },
    },
    [`${schemas}/ByName.yaml`]: exclusiveMember('name'),
    [`${schemas}/ByNumber.yaml`]: exclusiveMember('number'),
  };
}

function exclusiveMember(name: string): Json {
  return {
    type: 'object',
    required: [name],
    properties: { [name]: { type: 'string', description: 'The one member.' } },
    additionalProperties: false,
  };
}

describe('townhall/typed-values', () => {
  const rule = 'townhall/typed-values';
  const countingOperation = (schema: Json) =>
    change(goodFiles(), `${schemas}/BureauPaused.yaml`, ['properties', 'count'], schema);
  const count = { type: 'integer', description: 'How many.', minimum: 0, maximum: 9 };
  refuses(
    'refuses a const without a type',
    rule,
    /no `type` beside `const`/,
    'typed-const',
    change(goodFiles(), `${schemas}/BureauPaused.yaml`, ['properties', 'type'], { const: 'paused' }),
  );
  refuses(
    'refuses an integer without a width',
    rule,
    /int32 or int64/,
    'typed-width',
    countingOperation(count),
  );
  refuses(
    'refuses an integer without a bound',
    rule,
    /a `minimum` and a `maximum`/,
    'typed-bounds',
    countingOperation({ type: 'integer', description: 'How many.', format: 'int64', minimum: 0 }),
  );
  refuses(
    'refuses bounds that the width cannot hold',
    rule,
    /do not fit int32/,
    'typed-fit',
    countingOperation({ ...count, format: 'int32', maximum: 3_000_000_000 }),
  );
  const completeSample = sample('typed-good', countingOperation({ ...count, format: 'int32' }));
  test('accepts an integer with width and bounds', () => expect(completeSample()).toEqual([]));
});

describe('townhall/portable-pattern', () => {
  refuses(
    'refuses a class by its Unicode name',
    'townhall/portable-pattern',
    /uses \\P/,
    'pattern-unicode',
    change(goodFiles(), 'openapi/shared/schemas/BureauId.yaml', ['pattern'], '^\\P{Cc}+$'),
  );
  test.each([
    ['^(?=a)a$', /uses \(\?=/],
    ['^(?!a)b$', /uses \(\?!/],
    ['(?<!a)b', /uses \(\?</],
    ['(?<name>a)', /uses \(\?</],
    ['(a)\\1', /uses \\1/],
    ['\\u0041', /uses \\u/],
    ['\\0', /uses \\0/],
    ['a{1,1001}', /RE2 refuses/],
    ['[a[b]', /bare \[/],
    ['[a&&b]', /reads otherwise/],
    ['[^]', /empty class/],
    ['é', /outside of ASCII/],
    ['\\-', /with the u flag/],
    ['a{', /with the u flag/],
    ['(', /without the u flag/],
  ])('refuses %s', async (pattern, reason) => expect(await portabilityError(pattern)).toMatch(reason));
  test.each(['^[A-Za-z0-9_-]{1,128}$', '^[\\x20-\\x7e]*$', '^(?:a|b)+?\\.\\d$', '^[\\[\\]]$', 'a(\\?)b'])(
    'accepts %s',
    async (pattern) => expect(await portabilityError(pattern)).toBeNull(),
  );
});

async function portabilityError(pattern: string): Promise<string | null> {
  const rule = (await import(path.join(repository, 'openapi/rules/portable-pattern.js'))) as {
    portabilityError(pattern: string): string | null;
  };
  return rule.portabilityError(pattern);
}

describe('townhall/described', () => {
  const files = goodFiles();
  const request = files[`${schemas}/PauseRequest.yaml`] as { properties: Record<string, Json> };
  for (let index = 0; index < 12; index += 1) request.properties[`member_${index}`] = { type: 'string' };
  const read = sample('described-few', files);
  test('names the members without a description', () => {
    const problems = read().filter((finding) => finding.ruleId === 'townhall/described');
    expect(problems[0]?.message).toMatch(/% of the members are described; .*PauseRequest.yaml.* member_11/);
  });
});

describe('townhall/tag-introduction', () => {
  refuses(
    'refuses a tag that only repeats its name',
    'townhall/tag-introduction',
    /The tag bureaus needs an introduction/,
    'tag-short',
    change(goodFiles(), document, ['tags', 0, 'description'], 'The Bureaus.'),
  );
});

describe('townhall/list-names', () => {
  const rule = 'townhall/list-names';
  const listOf = (name: string, schema: { [member: string]: Json }) => {
    const files = goodFiles();
    files[`${schemas}/${name}.yaml`] = {
      type: 'object',
      example: { items: [] },
      ...schema,
    };
    return change(
      files,
      pause,
      ['post', 'responses', '200', 'content', 'application/json', 'schema', '$ref'],
      `./schemas/${name}.yaml`,
    );
  };
  const items = { type: 'array', description: 'The Bureaus.', items: { type: 'string' } };
  const cursor = { type: ['string', 'null'], description: 'The next page.' };
  refuses(
    'refuses a page that is called a list',
    rule,
    /BureauList has next_cursor, so its name ends in Page/,
    'list-page',
    listOf('BureauList', {
      required: ['items', 'next_cursor'],
      properties: { items, next_cursor: cursor },
      example: { items: [], next_cursor: null },
    }),
  );
  refuses(
    'refuses a list that may lack its items',
    rule,
    /does not require `items`/,
    'list-optional',
    listOf('BureauList', { properties: { items } }),
  );
  refuses(
    'refuses a cursor that cannot be null',
    rule,
    /cannot be null/,
    'list-cursor',
    listOf('BureauPage', {
      required: ['items', 'next_cursor'],
      properties: { items, next_cursor: { ...cursor, type: 'string' } },
      example: { items: [], next_cursor: 'c1' },
    }),
  );
});

describe('townhall/shared-types', () => {
  refuses(
    'refuses an id with a type of its own',
    'townhall/shared-types',
    /`user_id` must refer to the shared schema UserId.yaml/,
    'shared-own',
    change(goodFiles(), `${schemas}/PauseRequest.yaml`, ['properties', 'user_id'], {
      type: 'string',
      description: 'A user.',
    }),
  );
});

describe("redocly's own rules", () => {
  refuses(
    'refuse an example that breaks its schema',
    'no-invalid-media-type-examples',
    /bureau_id|additional|type/,
    'built-in-example',
    change(
      goodFiles(),
      pause,
      ['post', 'requestBody', 'content', 'application/json', 'examples', 'one', 'value'],
      {
        bureau_id: 7,
      },
    ),
  );
  refuses(
    'refuse a component that nothing uses',
    'no-unused-components',
    /never used/,
    'built-in-unused',
    change(goodFiles(), document, ['components', 'schemas'], { Spare: { type: 'object' } }),
  );
  refuses(
    'refuse a tag without a description',
    'tag-description',
    /description/,
    'built-in-tag',
    change(goodFiles(), document, ['tags', 0, 'description'], undefined),
  );
  refuses(
    'refuse a dangling reference',
    'no-unresolved-refs',
    /resolve/,
    'built-in-reference',
    change(goodFiles(), events, ['get', 'responses', '404', '$ref'], './none.yaml'),
  );
});
