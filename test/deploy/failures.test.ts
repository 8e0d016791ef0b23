// Deployments that fail at each step and for common reasons. The previous version continues to serve, the
// version number stays the same, and no version or candidate is left over.
import { existsSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { cityFolder, deploy, makePlan, type DeployOptions, type Step } from '../../src/deploy/index.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { freePort } from '../support/free-port.ts';
import { silentLog } from '../support/template.ts';
import { townhall } from '../cli/townhall.ts';
import { createCity, type CityWorld } from './city-world.ts';
import { listen } from '../support/local-server.ts';

const minutes = 60_000;
const runner = {
  command: process.execPath,
  arguments: [fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url))],
};
let city: CityWorld;
let originalSource: string;
beforeAll(async () => {
  city = await createCity();
  originalSource = await city.read('src/index.ts');
  const { code, screen } = await city.run(['deploy']);
  expect(code, screen).toBe(0);
}, 4 * minutes);
afterAll(async () => {
  await city?.close();
}, minutes);

/** What operators and callers can see of the City. */
async function snapshot(): Promise<unknown> {
  const { version, url, candidate } = (await city.supervisor.status()) ?? {};
  const versions = await cityFolder(city.directory).versions();
  return {
    version,
    url,
    candidate,
    package: await city.version(),
    versions,
    answer: await city.get('/v1/hello/world'),
    city: (await city.get('/v1/cities/current')).body,
  };
}

const planDeployment = () =>
  makePlan({
    directory: city.directory,
    env: { ...city.env, PATH: process.env['PATH'] },
    isForwarded: () => true,
    inspect: async () => [],
    log: silentLog,
  });

/** `progress` is called at the start of each step and can throw to let the step fail. */
const deployPlan = (
  plan: Awaited<ReturnType<typeof makePlan>>,
  progress: DeployOptions['progress'],
): ReturnType<typeof deploy> =>
  deploy(plan, { runner, clock: systemClock, log: silentLog, startMs: minutes, progress });

/** The source of an entry with a service. The statement runs only in the process of a gateway. */
const sourceWithStart = (statement: string): string => `import { defineService } from 'townhall';
if (process.argv.includes('serve')) ${statement}
export const a = defineService({ id: 'a', name: 'A', actions: { b: { method: 'GET', run: () => 1 } } });
`;

describe('a failed deployment changes nothing', { timeout: 4 * minutes }, () => {
  test.each<Step>(['provision', 'keep', 'supervise', 'trial', 'switch', 'record', 'raise', 'confirm'])(
    'at the step "%s"',
    async (failingStep) => {
      const snapshotBefore = await snapshot();
      const deployment = deployPlan(await planDeployment(), (step) => {
        if (step === failingStep) throw new Error(`no further than ${step}`);
      });
      await expect(deployment).rejects.toThrow(`no further than ${failingStep}`);
      expect(await snapshot()).toEqual(snapshotBefore);
    },
  );

  interface Fault {
    files?: Record<string, string>;
    env?: Record<string, string>;
    flags?: string[];
  }
  test.each<[title: string, fault: Fault, message: RegExp]>([
    [
      'an entry that throws',
      { files: { 'src/index.ts': "const a: number = 1;\nthrow new Error('my own words');\n" } },
      /src\/index\.ts: my own words \(line 2\)/,
    ],
    ['an entry that does not parse', { files: { 'src/index.ts': 'export const = 1;' } }, /src\/index\.ts: /],
    [
      'an entry that ends the process',
      { files: { 'src/index.ts': 'process.exit(3);' } },
      /ended the process \(code 3\)/,
    ],
    [
      'an entry that throws in the gateway only',
      { files: { 'src/index.ts': sourceWithStart("throw new Error('not here');") } },
      /src\/index\.ts: not here \(line 2\)/,
    ],
    [
      'an entry that ends the process of the gateway',
      { files: { 'src/index.ts': sourceWithStart('process.exit(4);') } },
      /exited \(code 4\)/,
    ],
    [
      'an entry that never completes in the gateway',
      {
        files: { 'src/index.ts': sourceWithStart('await new Promise(() => setInterval(() => {}, 1000));') },
        flags: ['--timeout', '4'],
      },
      /did not finish within 4 seconds/,
    ],
    [
      'an invalid declaration',
      { files: { 'townhall.json': '{\n  "schema": 2\n}' } },
      /townhall\.json:2:3: schema must be 1/,
    ],
    [
      'a package without a version',
      { files: { 'package.json': '{\n  "name": "demo"\n}' } },
      /package\.json:1:1: version is required/,
    ],
    [
      'a version with a suffix',
      { files: { 'package.json': '{ "version": "1.0.0-beta" }' } },
      /package\.json:1:3: version must be three numbers/,
    ],
    [
      'a setting with an invalid value',
      { env: { TIMEOUT_DRAIN_MS: 'soon' } },
      /TIMEOUT_DRAIN_MS takes a whole number/,
    ],
    [
      'a host that this machine does not have',
      { env: { HOST: '192.0.2.1', PORT: '0' } },
      /192\.0\.2\.1:0 is not available/,
    ],
  ])('for %s', async (_title, { files = {}, env = {}, flags = [] }, message) => {
    const snapshotBefore = await snapshot();
    const texts = new Map<string, string>();
    for (const [file, text] of Object.entries(files)) {
      texts.set(file, await city.read(file));
      await city.write(file, text);
    }
    const { code, screen } = await city.run(['deploy', ...flags], env);
    for (const [file, text] of texts) await city.write(file, text);
    expect(screen).toMatch(message);
    expect(screen).not.toContain('    at ');
    expect(code).toBe(1);
    expect(await snapshot()).toEqual(snapshotBefore);
  });

  test('for a port that another program uses', async () => {
    const otherServer = createServer();
    const { port } = await listen(otherServer);
    const snapshotBefore = await snapshot();
    const { code, screen } = await city.run(['deploy'], { PORT: String(port) });
    await new Promise((resolve) => otherServer.close(resolve));
    expect(screen).toContain(`127.0.0.1:${port} is not available: another program listens there`);
    expect(code).toBe(1);
    expect(await snapshot()).toEqual(snapshotBefore);
  });

  test('for Ctrl-C during the deployment', async () => {
    const snapshotBefore = await snapshot();
    const run = townhall(['deploy'], { cwd: city.directory, env: city.env });
    await run.waitFor(/trying/);
    run.process.kill('SIGINT');
    expect(await run.ended).toBe(1);
    expect(run.screen()).toContain(
      'The deployment was stopped.\nVersion 0.1.1 is still running; nothing was changed.',
    );
    expect(await snapshot()).toEqual(snapshotBefore);
  });
});

test(
  'a failed deployment keeps a version that its operator raised during it',
  { timeout: 4 * minutes },
  async () => {
    const plan = await planDeployment();
    const packageText = await city.read('package.json');
    const raisedText = await plan.version.raisedText();
    const deployment = deployPlan(plan, (step) => {
      if (step === 'raise') writeFileSync(join(city.directory, 'package.json'), raisedText);
    });
    await expect(deployment).rejects.toThrow('changed from 0.1.1 to 0.1.2 during the deployment');
    expect(await city.version()).toBe('0.1.2');
    await city.write('package.json', packageText);
  },
);

describe('the deployment after a failed deployment', { timeout: 4 * minutes }, () => {
  test('can move the City to another port', async () => {
    const urlBefore = await city.url();
    const port = await freePort();
    await city.write('src/index.ts', originalSource.replace('Hello, world.', 'Hello again.'));
    const { code, screen } = await city.run(['deploy'], { PORT: String(port) });
    expect(code, screen).toBe(0);
    expect(await city.url()).toBe(`http://127.0.0.1:${port}`);
    expect(await city.get('/v1/hello/world')).toEqual({ status: 200, body: { message: 'Hello again.' } });
    // The previous version finishes its requests and then closes its port.
    await expect
      .poll(
        () =>
          fetch(`${urlBefore}/health`).then(
            () => 'answers',
            () => 'gone',
          ),
        { timeout: 60_000 },
      )
      .toBe('gone');
    expect(await city.version()).toBe('0.1.2');
  });

  test('succeeds after the command was killed during a deployment', async () => {
    const deployment = townhall(['deploy'], { cwd: city.directory, env: city.env });
    const candidate = async () => (await city.supervisor.status())?.candidate;
    await expect.poll(candidate, { timeout: 60_000, interval: 20 }).toMatch(/^0\.1\.3/);
    deployment.process.kill('SIGKILL');
    // The supervisor completes the trial of the candidate, although no command reads its result.
    await expect.poll(async () => (await city.supervisor.status())?.step, { timeout: 80_000 }).toBe(null);
    expect(await candidate()).toMatch(/^0\.1\.3/);
    const { code, screen } = await city.run(['deploy']);
    expect(code, screen).toBe(0);
    expect(await city.version()).toBe('0.1.3');
  });
});

describe('a City whose port is in use', { timeout: 4 * minutes }, () => {
  test('does not start and leaves no control socket', async () => {
    const port = Number(new URL(await city.url()).port);
    expect((await city.run(['city', 'stop'])).code).toBe(0);
    const otherServer = createServer();
    await expect
      .poll(
        () =>
          new Promise((resolve) =>
            otherServer
              .once('error', () => resolve('taken'))
              .listen(port, '127.0.0.1', () => resolve('free')),
          ),
        { timeout: 60_000 },
      )
      .toBe('free');
    const { code, screen } = await city.run(['city', 'run']);
    await new Promise((resolve) => otherServer.close(resolve));
    expect(screen).toContain(`127.0.0.1:${port} is not available: another program listens there`);
    expect(screen).not.toContain('did not exit within');
    expect(code).toBe(1);
    expect(existsSync(cityFolder(city.directory).socket)).toBe(false);
  });
});
