// A project with one service of its own: notes that each user keeps. Serve it with
//   townhall gateway --project examples/project
import { ActionError, defineService } from 'townhall';

interface Note {
  note_id: string;
  text: string;
}

// The notes are in memory to keep the example small; a real service uses a database.
const notesOf = new Map<string, Note[]>();

const note = {
  type: 'object',
  required: ['note_id', 'text'],
  properties: { note_id: { type: 'string' }, text: { type: 'string' } },
  additionalProperties: false,
};

export const notes = defineService({
  id: 'notes',
  name: 'Notes',
  env: [
    {
      key: 'NOTES_GREETING',
      description: 'What the service says to guests.',
      required: false,
      secret: false,
    },
  ],
  actions: {
    // An empty list of identities admits guests.
    about: {
      method: 'GET',
      identities: [],
      run: ({ env }) => ({ greeting: env['NOTES_GREETING'] ?? 'Notes, one list a user.' }),
    },
    // Without a list it is for users alone.
    add: {
      method: 'POST',
      input: {
        type: 'object',
        required: ['text'],
        properties: { text: { type: 'string', minLength: 1, maxLength: 1000 } },
        additionalProperties: false,
      },
      output: note,
      run({ input, user, log }) {
        const ownNotes = notesOf.get(user?.userId ?? '') ?? [];
        const newNote = { note_id: `note_${ownNotes.length + 1}`, text: input.text };
        notesOf.set(user?.userId ?? '', [...ownNotes, newNote]);
        log.info({ noteId: newNote.note_id }, 'a note was added');
        return newNote;
      },
    },
    list: {
      method: 'GET',
      input: {
        type: 'object',
        properties: { limit: { type: 'integer', minimum: 1, maximum: 100 } },
        additionalProperties: false,
      },
      output: { type: 'object', required: ['items'], properties: { items: { type: 'array', items: note } } },
      run: ({ input, user }) => ({
        items: (notesOf.get(user?.userId ?? '') ?? []).slice(0, input.limit ?? 100),
      }),
    },
    // An id may have two parts; an administrator alone may call this one.
    'users/clear': {
      method: 'POST',
      identities: ['admin'],
      input: {
        type: 'object',
        required: ['user_id'],
        properties: { user_id: { type: 'string' } },
        additionalProperties: false,
      },
      run({ input }) {
        if (!notesOf.delete(input.user_id))
          throw new ActionError(404, 'service_no_notes', 'This user has no notes.');
        return { cleared: true };
      },
    },
  },
});
