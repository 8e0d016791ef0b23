// `townhall city`: looks after what `townhall deploy` brought into service. Two of its words are for the deployment's own
// processes: `run` is the supervisor, `serve` a gateway under it.
import { createReadStream, existsSync } from 'node:fs';
import { stat, watch } from 'node:fs/promises';
import { resolve } from 'node:path';
import { cityFolder, openProject, rollBack, startDetached, supervision, survey } from '../../deploy/index.ts';
import type { CityFolder, Survey } from '../../deploy/index.ts';
import { inspectProject } from '../../gateway/compose.ts';
import { systemClock } from '../../kernel/clock.ts';
import { SettingError } from '../../kernel/settings.ts';
import { ownRunner } from '../city/environment.ts';
import { runSupervisor } from '../city/run-supervisor.ts';
import { serveSupervised } from '../city/serve-supervised.ts';
import { deployNeeds, planOf, readTimeout } from '../city/plan.ts';
import { parseFlags } from '../command-line/command.ts';
import type { Command, CommandInput } from '../command-line/command.ts';

export const cityCommand: Command = {
  help: () =>
    [
      'Usage: townhall city status|stop|start|run [OPTIONS]',
      '       townhall city rollback [--to VERSION] [OPTIONS]',
      '       townhall city logs [--follow] [OPTIONS]',
      '',
      'Looks after what "townhall deploy" brought into service.',
      '',
      '  status                 which version serves, where, and which are kept; the exit code is 1 when none serves',
      '  stop                   let it finish what it does, and end it',
      '  start                  start again what was deployed last, as after a reboot; give the same environment',
      '  run                    the same as start, in the foreground, for a service manager',
      '  rollback               bring the version before back, or another one that is kept',
      '  logs                   print the log; --follow goes on with what comes',
      '',
      '  --project DIR          the project, instead of this folder',
      '  --timeout SECONDS      how long a version may take to be ready (60)',
      '  --json                 print the result as JSON',
    ].join('\n'),
  async run(input) {
    const { flags, words } = parseFlags(input.arguments, {
      flags: ['project', 'to', 'timeout'],
      switches: ['json', 'follow', 'detached', 'wait'],
    });
    const [word, ...surplus] = words;
    const work = word !== undefined && Object.hasOwn(works, word) ? works[word] : undefined;
    if (work === undefined || surplus.length > 0)
      throw new SettingError(
        'say "townhall city status", "rollback", "stop", "start", "logs" or "run"; see --help.',
      );
    return work({
      input,
      flags,
      directory: resolve(flags['project'] ?? '.'),
      isJson: flags['json'] === 'true',
    });
  },
};

interface Asked {
  input: CommandInput;
  flags: Record<string, string | undefined>;
  directory: string;
  isJson: boolean;
}

const works: Readonly<Record<string, (asked: Asked) => Promise<number>>> = {
  status,
  rollback,
  stop,
  start,
  logs,
  run: ({ input, flags, directory }) =>
    runSupervisor({
      directory,
      env: input.env,
      isDetached: flags['detached'] === 'true',
      waits: flags['wait'] === 'true',
    }),
  serve: ({ input }) => serveSupervised(input.env),
  check,
};

async function status({ input, directory, isJson }: Asked): Promise<number> {
  const { running, state, folder, declaration } = await surveyOf(directory, input);
  const kept = await folder.versions();
  const live =
    running?.version === undefined || running.version === null
      ? null
      : { ...running, version: running.version };
  if (isJson)
    input.print(
      JSON.stringify({
        running: live !== null,
        ...running,
        city_id: declaration.id,
        base_url: state?.baseUrl ?? null,
        kept,
      }),
    );
  else if (live === null)
    input.print(
      state === null
        ? 'Nothing was deployed from here yet.'
        : `Stopped; ${state.version} was deployed last. Start it: townhall city start`,
    );
  else {
    const rows = [
      ['city', `${declaration.name} (${declaration.id})`],
      ['version', live.version],
      ['url', live.url ?? ''],
      ['gateway', `process ${live.gatewayPid ?? 'none'}, restarted ${live.restarts} times`],
      ['supervisor', `process ${live.pid}`],
      ['kept', kept.join(', ')],
    ];
    for (const [name = '', value = ''] of rows) input.print(`${name.padEnd(12)}${value}`);
  }
  return live === null ? 1 : 0;
}

async function rollback({ input, flags, directory, isJson }: Asked): Promise<number> {
  const tell = (line: string): void => (isJson ? input.complain(line) : input.print(line));
  const { folder, state } = await surveyOf(directory, input);
  const to = flags['to'] ?? null;
  // The plan is that of the version's own declaration, entry and services; the address and the folder are the City's.
  const target = to ?? state?.previous ?? null;
  const kept =
    target === null || !(await folder.versions()).includes(target) ? directory : folder.versionPath(target);
  const plan = await planOf(kept, input, { cityDirectory: directory });
  const { version, url } = await rollBack(plan, to, deployNeeds(tell, readTimeout(flags['timeout'])));
  if (isJson) input.print(JSON.stringify({ outcome: 'rolled_back', version, url }));
  else input.print(`${version} serves at ${url}`);
  return 0;
}

async function stop({ input, directory, isJson }: Asked): Promise<number> {
  const stopped = await supervision(cityFolder(directory)).stop();
  if (isJson) input.print(JSON.stringify({ stopped }));
  else input.print(stopped ? 'Stopped.' : 'Nothing runs.');
  return 0;
}

async function start({ input, directory, isJson }: Asked): Promise<number> {
  const { folder, state, running } = await surveyOf(directory, input);
  if (running !== null) throw new Error(`Version ${running.version} runs already, at ${running.url}.`);
  if (state === null) throw new Error('Nothing was deployed from here yet; run: townhall deploy');
  const { gatewayEnv: env } = await planOf(folder.versionPath(state.version), input, {
    cityDirectory: directory,
  });
  await startDetached({ folder, runner: ownRunner(), env, clock: systemClock, isForDeployment: false });
  const found = await waitUntilServing(folder);
  if (isJson) input.print(JSON.stringify({ outcome: 'started', version: found.version, url: found.url }));
  else input.print(`${found.version} serves at ${found.url}`);
  return 0;
}

const servingMs = 60_000;

async function waitUntilServing(folder: CityFolder): Promise<NonNullable<Survey['running']>> {
  const asked = supervision(folder);
  const lateMs = systemClock.monotonicMs() + servingMs;
  for (;;) {
    const found = await asked.status();
    if (found === null) throw new Error(`The supervisor ended; ${folder.logFile} says why.`);
    if (found.isServing) return found;
    if (systemClock.monotonicMs() > lateMs)
      throw new Error(`It does not serve yet; ${folder.logFile} says why.`);
    await systemClock.sleep(100);
  }
}

async function logs({ input, flags, directory }: Asked): Promise<number> {
  const { logFile } = cityFolder(directory);
  if (!existsSync(logFile)) throw new Error('Nothing was deployed from here yet; run: townhall deploy');
  let at = await printFrom(logFile, 0, input);
  if (flags['follow'] !== 'true') return 0;
  for await (const _change of watch(logFile)) {
    const { size } = await stat(logFile);
    // Set aside and begun anew.
    if (size < at) at = 0;
    at = await printFrom(logFile, at, input);
    if (!input.isHeard()) break;
  }
  return 0;
}

async function printFrom(path: string, start: number, { print, isHeard }: CommandInput): Promise<number> {
  let rest = '';
  let at = start;
  for await (const piece of createReadStream(path, { start, encoding: 'utf8' }) as AsyncIterable<string>) {
    at += Buffer.byteLength(piece);
    const lines = (rest + piece).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) print(line);
    if (!isHeard()) break;
  }
  return at - Buffer.byteLength(rest);
}

/** For the deployment itself: what the entry of a project exports, when it exports what can be served. */
async function check({ directory }: Asked): Promise<number> {
  const services = await inspectProject(await openProject(directory));
  await new Promise<void>((written) =>
    process.stdout.write(`${JSON.stringify(services)}\n`, () => written()),
  );
  // An entry may have opened what keeps a process alive.
  process.exit(0);
}

function surveyOf(directory: string, { env }: Pick<CommandInput, 'env'>): Promise<Survey> {
  return survey({ directory, env });
}
