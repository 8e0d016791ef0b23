// `townhall deploy`: the way of a project into service, and looks at it that change nothing.
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { join, resolve } from 'node:path';
import {
  cityFolder,
  deploy,
  readDeclaration,
  renderProject,
  supervision,
  survey,
  verify,
} from '../../deploy/index.ts';
import type { Plan, Survey, Verified } from '../../deploy/index.ts';
import { SettingError } from '../../kernel/settings.ts';
import { ownRunner } from '../city/environment.ts';
import { deployNeeds, planOf, readTimeout } from '../city/plan.ts';
import { parseFlagsAlone } from '../command-line/command.ts';
import type { Command, CommandInput } from '../command-line/command.ts';
import { version } from '../command-line/version.ts';

export const deployCommand: Command = {
  help: () =>
    [
      'Usage: townhall deploy [OPTIONS]',
      '',
      'Brings the project of this folder into service: makes what is missing, tries the new version, switches to it',
      'without refusing a request, and raises the version in package.json. When a step fails the version before goes on.',
      'Settings are those of the environment, as for "townhall gateway"; see its --help.',
      '',
      '  --project DIR          the project, instead of this folder',
      '  --dry-run              check everything and print the plan; nothing is changed',
      '  --verify-only          look at what runs; the exit code is 1 when nothing healthy does',
      '  --timeout SECONDS      how long the new version may take to be ready (60)',
      '  --render DIR           write a Dockerfile, a compose file and a systemd unit into a folder of the project',
      '  --stop                 stop what runs, as "townhall city stop" does',
      '  --json                 print the result as JSON',
      '',
      'townhall city --help says how to look after what runs.',
    ].join('\n'),
  async run(input) {
    const flags = parseFlagsAlone(input.arguments, {
      flags: ['project', 'timeout', 'render'],
      switches: ['dry-run', 'verify-only', 'stop', 'json'],
    });
    const modes = ['dry-run', 'verify-only', 'stop', 'render'].filter((name) => flags[name] !== undefined);
    if (modes.length > 1) throw new SettingError(`--${modes.join(' and --')} do not go together.`);
    const directory = resolve(flags['project'] ?? '.');
    const startMs = readTimeout(flags['timeout']);
    const show: Show = { input, isJson: flags['json'] === 'true' };
    if (flags['render'] !== undefined) return render(directory, flags['render'], show);
    if (modes[0] === 'verify-only')
      return showVerdict(await verify(await survey({ directory, env: input.env })), show);
    if (modes[0] === 'stop') return stop(await survey({ directory, env: input.env }), show);
    return bringIn(directory, { show, startMs, isDry: modes[0] === 'dry-run' }).catch(
      async (error: unknown) => {
        // Whoever reads that it failed asks next whether anything serves.
        const served =
          (
            await supervision(cityFolder(directory))
              .status()
              .catch(() => null)
          )?.version ?? null;
        if (served === null || !(error instanceof Error) || error instanceof SettingError) throw error;
        throw new Error(`${error.message}\nVersion ${served} serves on; nothing was changed.`, {
          cause: error,
        });
      },
    );
  },
};

interface Show {
  input: CommandInput;
  isJson: boolean;
}

async function bringIn(
  directory: string,
  { show: { input, isJson }, startMs, isDry }: { show: Show; startMs: number; isDry: boolean },
): Promise<number> {
  const plan = await planOf(directory, input);
  const tell = (line: string): void => (isJson ? input.complain(line) : input.print(line));
  for (const line of linesOf(plan)) tell(line);
  if (isDry) {
    if (isJson) input.print(JSON.stringify({ outcome: 'planned', ...facts(plan) }));
    else input.print('Nothing was changed.');
    return 0;
  }
  tell('');
  const { url, baseUrl, version: live } = await deploy(plan, deployNeeds(tell, startMs));
  if (isJson)
    input.print(
      JSON.stringify({ outcome: 'deployed', ...facts(plan), version: live, url, base_url: baseUrl }),
    );
  else {
    input.print('');
    input.print(
      `${plan.declaration.name} ${live} serves at ${url}${baseUrl === url ? '' : `, for users at ${baseUrl}`}`,
    );
    input.print(`  curl ${url}/health`);
  }
  return 0;
}

const states = { found: 'is there', made: 'will be made', changed: 'will be raised' };

function linesOf({ declaration, services, lines }: Plan): string[] {
  const width = Math.max(...lines.map(({ what }) => what.length)) + 2;
  return [
    `Plan for ${declaration.name} (${declaration.id})`,
    `  ${'services'.padEnd(width)}${services.map(({ id }) => id).join(', ')}`,
    ...lines.map(({ what, state, detail }) => `  ${what.padEnd(width)}${states[state]}: ${detail}`),
  ];
}

function facts({ declaration, services, lines, version: { current, next } }: Plan) {
  return {
    city_id: declaration.id,
    name: declaration.name,
    package_version: current,
    next_version: next,
    services: services.map(({ id }) => id),
    plan: lines,
  };
}

function showVerdict(verdict: Verified, { input, isJson }: Show): number {
  const { ok, url, version: live, problem } = verdict;
  if (isJson) input.print(JSON.stringify({ outcome: 'verified', ok, url, version: live, problem }));
  else if (ok) input.print(`Healthy: version ${live} at ${url}.`);
  else input.complain(`Nothing healthy serves at ${url}: ${problem}`);
  return ok ? 0 : 1;
}

async function stop({ folder }: Survey, { input, isJson }: Show): Promise<number> {
  const stopped = await supervision(folder).stop();
  if (isJson) input.print(JSON.stringify({ stopped }));
  else input.print(stopped ? 'Stopped.' : 'Nothing runs.');
  return 0;
}

async function render(project: string, folder: string, { input, isJson }: Show): Promise<number> {
  const declaration = await readDeclaration(project);
  const runner = ownRunner();
  const target = resolve(project, folder);
  const files = renderProject({
    declaration,
    version,
    directory: project,
    folder: target,
    user: userInfo().username,
    command: [runner.command, ...runner.arguments],
  });
  for (const [name, text] of Object.entries(files)) {
    const found = await readFile(join(target, name), 'utf8').catch(() => null);
    if (found !== null && found !== text && !found.includes('Rendered by "townhall deploy --render"'))
      throw new Error(`${join(target, name)} is there already and was not rendered by this command.`);
  }
  await mkdir(target, { recursive: true });
  for (const [name, text] of Object.entries(files)) await writeFile(join(target, name), text);
  if (isJson)
    input.print(JSON.stringify({ outcome: 'rendered', directory: target, files: Object.keys(files) }));
  else {
    for (const name of Object.keys(files)) input.print(join(target, name));
    input.print('Their form is checked; they have not been run.');
  }
  return 0;
}
