// Runs every code sample of the contract against running servers. A sample fails when the answer is not a
// success: curl then exits with an error (--fail-with-body), and the client and urllib throw.
import path from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { sampledOperations } from './sampled-operations.ts';
import {
  adaptSample,
  createSampleFolder,
  prepareSample,
  runCurl,
  runProgram,
  sampleTokens,
} from './sample-runner.ts';
import { startSampleServers, type SampleServers } from './sample-servers.ts';

const folder = createSampleFolder();
let servers: SampleServers;
beforeAll(async () => {
  servers = await startSampleServers();
});
afterAll(async () => {
  await servers?.close();
  folder.remove();
});
afterEach(() => {
  vi.unstubAllEnvs();
});

const isLabel = (language: string) => (label: string) =>
  label === language || label.startsWith(`${language} (`);

describe.each(['curl', 'TypeScript', 'Python'])('the samples for %s', (language) => {
  const samples = sampledOperations().flatMap((entry) =>
    entry.samples
      .filter(({ label }) => isLabel(language)(label))
      // For an alias the client calls the path of the original, whose sample already runs.
      .filter(() => entry.aliasOf === undefined || language !== 'TypeScript')
      .map(({ label, source }) => [`${entry.surface} ${entry.id} in ${label}`, entry, source] as const),
  );

  test.each(samples)('succeed: %s', async (_title, entry, source) => {
    const preparation = await prepareSample(servers, entry);
    const text = adaptSample(source, servers, entry, preparation);
    const tokens = { ...sampleTokens(servers, entry), ...preparation.tokens };
    const output = await runSample(language, text, tokens);
    // Audio, pictures and removals print little or nothing; other samples print their answer.
    expect(output, entry.id).not.toMatch(/^\{"error"/m);
  });
});

/** Returns the output; rejects when the sample fails. */
async function runSample(language: string, text: string, tokens: Record<string, string>): Promise<string> {
  if (language === 'TypeScript') return runTypeScript(text, tokens);
  if (language === 'Python') return runProgram('python3', ['-c', text], { cwd: folder.path, env: tokens });
  return runCurl(text, { cwd: folder.path, env: tokens });
}

async function runTypeScript(text: string, tokens: Record<string, string>): Promise<string> {
  for (const [name, value] of Object.entries(tokens)) vi.stubEnv(name, value);
  // A module runs in the working directory of the tests, where the sample would leave its file.
  const answerFile = path.join(folder.path, 'answer');
  return folder.runModule(text.replace("writeFile('answer'", `writeFile('${answerFile}'`));
}
