// Third-party validators of our answers: JSON Schemas generated from the published types of the AI
// SDK and of OpenAI's client. The first test that uses them generates them; they are cached under
// build/ by package version.
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Ajv, type ValidateFunction } from 'ajv';
import addFormats from 'ajv-formats';
import { createGenerator } from 'ts-json-schema-generator';
import { packageFolder } from './package-folder.ts';

const root = path.join(import.meta.dirname, '..', '..');
const folder = path.join(root, 'build', 'oracles');

/** Throws with the path when the value does not match the published type. */
export type Oracle = (value: unknown) => void;

/** Time limit for a test that generates the schemas, which takes half a minute on a busy machine. */
export const oracleTimeoutMs = 240_000;

/** A stream part of the language-model specification, version 3. */
export const streamPartV3 = oracle({
  package: 'ai-provider3',
  file: 'dist/index.d.ts',
  type: 'LanguageModelV3StreamPart',
});
/** A stream part of version 4. */
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
    if (check(value)) return;
    const [error] = check.errors ?? [];
    const reason = `${error?.instancePath} ${error?.message} ${JSON.stringify(error?.params)}`;
    throw new Error(
      `This is not a valid ${source.type}: ${reason} in ${JSON.stringify(value).slice(0, 500)}`,
    );
  };
}

function compile(schema: object): ValidateFunction {
  const ajv = new Ajv({ strict: false, allErrors: false });
  addFormats.default(ajv);
  return ajv.compile(schema);
}

// Increase it when the generation below changes: the cached schemas are then generated again.
const schemaVersion = 3;

function schemaOf(source: Source): object {
  const { version } = JSON.parse(
    readFileSync(path.join(packageFolder(source.package), 'package.json'), 'utf8'),
  ) as { version: string };
  const key = createHash('sha256')
    .update(JSON.stringify([source, version, schemaVersion]))
    .digest('hex')
    .slice(0, 12);
  const cacheFile = path.join(folder, `${source.type}-${key}.json`);
  if (existsSync(cacheFile)) return JSON.parse(readFileSync(cacheFile, 'utf8')) as object;
  mkdirSync(folder, { recursive: true });
  // Two test files may generate at once: each writes a file of its own and renames it into place.
  const temporaryFile = `${cacheFile}.${process.pid}`;
  // The generator finds types that a file declares, but not those that it re-exports.
  const entry = `${temporaryFile}.ts`;
  const declaration = `${packageFolder(source.package)}/${source.file}`;
  writeFileSync(
    entry,
    `import type { ${source.type} as Published } from '${declaration}';\nexport type Checked = Published;\n`,
  );
  const schema = createGenerator({
    path: entry,
    tsconfig: path.join(root, 'tsconfig.json'),
    // Refuse members beyond the published ones unless the type allows any.
    additionalProperties: false,
    skipTypeCheck: true,
  }).createSchema('Checked');
  rmSync(entry);
  // A self-referencing index signature is generated as an object without members; allow any member.
  const text = JSON.stringify(schema).replaceAll(
    /\{"type":"object","additionalProperties":false(?:,"properties":\{\})?\}/g,
    '{"type":"object"}',
  );
  writeFileSync(temporaryFile, text);
  renameSync(temporaryFile, cacheFile);
  return JSON.parse(text) as object;
}
