// Judges of what we send that are not ours: JSON Schemas made from the types that the AI SDK and OpenAI's client
// publish. They are made at the first test that asks, and kept under build/ by the version of the package.
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Ajv, type ValidateFunction } from 'ajv';
import addFormats from 'ajv-formats';
import { createGenerator } from 'ts-json-schema-generator';

const root = path.join(import.meta.dirname, '..', '..');
const folder = path.join(root, 'build', 'oracles');

/** Throws, naming the place, when the value is not of the published type. */
export type Oracle = (value: unknown) => void;

/** Making them takes half a minute on a busy machine; a test that uses one waits for them first. */
export const oraclesMs = 240_000;

/** A part of a stream of version 3 of the language-model specification. */
export const streamPartV3 = oracle({
  package: 'ai-provider3',
  file: 'dist/index.d.ts',
  type: 'LanguageModelV3StreamPart',
});
/** The same of version 4. */
export const streamPartV4 = oracle({
  package: '@ai-sdk/provider',
  file: 'dist/index.d.ts',
  type: 'LanguageModelV4StreamPart',
});
export const chatCompletion = oracle({
  package: 'openai',
  file: 'resources/chat/completions/completions.d.ts',
  type: 'ChatCompletion',
});
export const chatCompletionChunk = oracle({
  package: 'openai',
  file: 'resources/chat/completions/completions.d.ts',
  type: 'ChatCompletionChunk',
});

interface Source {
  package: string;
  file: string;
  type: string;
}

function oracle(source: Source): Oracle {
  let check: ValidateFunction | undefined;
  return (value) => {
    check ??= compile(schemaOf(source));
    // JSON has neither dates nor undefined; what a client makes of them is its own.
    if (check(value)) return;
    const [error] = check.errors ?? [];
    throw new Error(
      `This is no ${source.type}: ${error?.instancePath} ${error?.message} ${JSON.stringify(error?.params)} in ${JSON.stringify(value).slice(0, 500)}`,
    );
  };
}

function compile(schema: object): ValidateFunction {
  const ajv = new Ajv({ strict: false, allErrors: false });
  addFormats.default(ajv);
  return ajv.compile(schema);
}

// Counts up with what is mended below, so that no schema of before is kept.
const repairs = 2;

function schemaOf(source: Source): object {
  const { version } = JSON.parse(
    readFileSync(path.join(root, 'node_modules', source.package, 'package.json'), 'utf8'),
  ) as { version: string };
  const key = createHash('sha256')
    .update(JSON.stringify([source, version, repairs]))
    .digest('hex')
    .slice(0, 12);
  const cacheFile = path.join(folder, `${source.type}-${key}.json`);
  if (existsSync(cacheFile)) return JSON.parse(readFileSync(cacheFile, 'utf8')) as object;
  mkdirSync(folder, { recursive: true });
  // Two test files may make it at once; each has files of its own and puts a whole one in place.
  const temporaryFile = `${cacheFile}.${process.pid}`;
  // The generator finds types that a file declares, not those that it hands on.
  const entry = `${temporaryFile}.ts`;
  writeFileSync(
    entry,
    `import type { ${source.type} as Published } from '../../node_modules/${source.package}/${source.file}';\nexport type Judged = Published;\n`,
  );
  const schema = createGenerator({
    path: entry,
    tsconfig: path.join(root, 'tsconfig.json'),
    // Members beyond the published ones are refused where the type does not open itself.
    additionalProperties: false,
    skipTypeCheck: true,
  }).createSchema('Judged');
  rmSync(entry);
  // An index signature that refers to itself comes out as an object without members; it is one with any.
  const text = JSON.stringify(schema).replaceAll(
    /\{"type":"object","additionalProperties":false(?:,"properties":\{\})?\}/g,
    '{"type":"object"}',
  );
  writeFileSync(temporaryFile, text);
  renameSync(temporaryFile, cacheFile);
  return JSON.parse(text) as object;
}
