// Neither the database nor the log contains a stored value, in any encoding.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { testMasterKey } from '../../support/gateway.ts';
import { findSecrets } from '../stored-text.ts';
import { refusal, startEnvWorld, type EnvWorld } from './world.ts';

const canaries = [
  'CANARY-9d1e4c+provider/key=',
  'CANARY käy "quoted" \n second line',
  'postgres://user:CANARY-p%40ss@host/db',
];

let world: EnvWorld;
beforeAll(async () => {
  world = await startEnvWorld();
  const [keyCanary = '', linesCanary = '', urlCanary = ''] = canaries;
  await world.admin.env.upsertVariable({ key: 'ACME_API_KEY', value: keyCanary });
  await world.admin.env.importVariables({ content: `SECOND_KEY='${linesCanary}'\nTHIRD_KEY=${urlCanary}` });
  await world.admin.env.listVariables({ reveal: true });
  await world.user.ai.generateText({ model: 'acme/fast', prompt: 'x' });
  await refusal(world.admin.env.importVariables({ content: `FINE=${urlCanary}\n${linesCanary}` }));
  await world.admin.env.upsertVariable({ key: 'ACME_API_KEY', value: linesCanary.replaceAll('\n', ' ') });
  await world.admin.env.removeVariable({ key: 'SECOND_KEY' });
});
afterAll(() => world?.close());

test('a stored value is used for a call', () => {
  expect(world.keysSent()).toEqual([canaries[0]]);
});

test('no table contains a stored value in any encoding', async () => {
  const dump = await world.dump();
  expect(dump).toContain('ACME_API_KEY');
  expect(dump).toContain('fp_');
  expect(findSecrets(dump, canaries)).toEqual([]);
});

test('no table contains the master key', async () => {
  expect(await world.dump()).not.toContain(testMasterKey);
});

test('the log at level debug contains no stored value', () => {
  const log = world.logLines.join('');
  expect(log).toContain('env.upsertVariable');
  expect(
    findSecrets(log, [...canaries, ...canaries.map((canary) => JSON.stringify(canary).slice(1, -1))]),
  ).toEqual([]);
  expect(log).not.toContain('CANARY');
});
