// The actions and jobs of a project use its declared resources: the database with its migrations, the queue
// and the storage.
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createCity, type CityWorld } from './city-world.ts';

const minutes = 60_000;
const entry = `import {
  defineService,
  type ActionCall,
  type JobCall,
  type ProjectDatabase,
  type ProjectQueue,
  type ProjectStorage,
} from 'townhall';
interface Resources { db: ProjectDatabase; work: ProjectQueue; files: ProjectStorage }
const text = {
  type: 'object',
  required: ['text'],
  properties: { text: { type: 'string' } },
  additionalProperties: false,
};
export const notes = defineService({
  id: 'notes',
  name: 'Notes',
  actions: {
    add: {
      method: 'POST', identities: [], input: text,
      async run({ input, resources: { db, work } }: ActionCall<{ text: string }, Resources>) {
        return db.begin(async (tx) => {
          const [row] = await tx<{ note_id: bigint }[]>\`
            insert into project.notes (text) values (\${input.text}) returning note_id\`;
          const id = await work.enqueue('shout', { noteId: String(row?.note_id) }, { tx });
          if (input.text === 'refuse') throw new Error('undone');
          return { note_id: Number(row?.note_id), queued: id !== null };
        });
      },
    },
    list: {
      method: 'GET', identities: [],
      async run({ resources: { db } }: ActionCall<object, Resources>) {
        const rows = await db<{ text: string }[]>\`select text from project.notes order by note_id\`;
        const jobs = await db<{ note_id: bigint }[]>\`select note_id from project.shouts order by note_id\`;
        return { items: rows.map((row) => row.text), jobs: jobs.map((row) => Number(row.note_id)) };
      },
    },
    keep: {
      method: 'POST', identities: [], input: text,
      async run({ input, resources: { files } }: ActionCall<{ text: string }, Resources>) {
        await files.put('first', Buffer.from(input.text));
        const file = await files.open('first');
        return { size: file?.size, url: files.url('first') };
      },
    },
  },
  jobs: {
    shout: {
      async run({ data, resources: { db } }: JobCall<{ noteId: string }, Resources>) {
        await db\`update project.notes set text = upper(text) where note_id = \${data.noteId}::bigint\`;
        await db\`insert into project.shouts (note_id) values (\${data.noteId}::bigint)\`;
      },
    },
  },
});
`;

let city: CityWorld;
beforeAll(async () => {
  city = await createCity();
  const declaration = JSON.parse(await city.read('townhall.json')) as {
    deployment: { resources: { database: object } };
  };
  const { database } = declaration.deployment.resources;
  await city.declare({
    deployment: {
      target: 'local',
      resources: {
        database,
        queue: { type: 'pg-boss', binding: 'work' },
        storage: {
          type: 'directory',
          binding: 'files',
          name: 'notes-files',
          public_url_prefix: 'https://files.example.test/',
        },
      },
    },
  });
  await mkdir(join(city.directory, 'migrations'));
  await city.write(
    'migrations/0001_notes.sql',
    `create table project.notes (
      note_id bigint generated always as identity primary key, text text not null);
    create table project.shouts (note_id bigint not null);`,
  );
  await city.write('src/index.ts', entry);
  const { code, screen } = await city.run(['deploy']);
  expect(code, screen).toBe(0);
}, 2 * minutes);
afterAll(async () => {
  await city?.close();
}, minutes);

async function post(path: string, body: object): Promise<{ status: number; body: unknown }> {
  const answer = await fetch(`${await city.url()}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  return { status: answer.status, body: await answer.json() };
}

describe('declared resources', { timeout: minutes }, () => {
  test('run a job after the transaction that added it', async () => {
    expect(await post('/v1/notes/add', { text: 'good morning' })).toEqual({
      status: 200,
      body: { note_id: 1, queued: true },
    });
    await expect
      .poll(async () => (await city.get('/v1/notes/list')).body, { timeout: 60_000 })
      .toEqual({ items: ['GOOD MORNING'], jobs: [1] });
  });

  test('keep neither the row nor the job of a transaction that fails', async () => {
    expect((await post('/v1/notes/add', { text: 'refuse' })).status).toBe(500);
    expect((await city.get('/v1/notes/list')).body).toMatchObject({ items: ['GOOD MORNING'] });
    // The failed transaction has used up the id 2. A job of it would be taken before the job of this note.
    expect((await post('/v1/notes/add', { text: 'good night' })).body).toMatchObject({ note_id: 3 });
    await expect
      .poll(async () => (await city.get('/v1/notes/list')).body, { timeout: 60_000 })
      .toEqual({ items: ['GOOD MORNING', 'GOOD NIGHT'], jobs: [1, 3] });
  });

  test('store bytes and return their address', async () => {
    expect(await post('/v1/notes/keep', { text: 'bytes' })).toEqual({
      status: 200,
      body: { size: 5, url: 'https://files.example.test/first' },
    });
    expect(await city.read('.townhall/storage/notes-files/first')).toBe('bytes');
  });

  test('are reused with their data by the next deployment', async () => {
    const { code, screen } = await city.run(['deploy', '--json']);
    expect(code, screen).toBe(0);
    const { plan } = JSON.parse(screen.trim().split('\n').at(-1) ?? '') as {
      plan: { what: string; state: string }[];
    };
    expect(plan.filter(({ state }) => state === 'made')).toEqual([]);
    expect((await city.get('/v1/notes/list')).body).toMatchObject({ items: ['GOOD MORNING', 'GOOD NIGHT'] });
  });
});
