// The verbs with which an operationId may begin after its service, each with its one meaning on both
// surfaces. A reader who knows the verb knows what a call does, whether a second call does it again, and
// whether it can be undone. `methods` are the HTTP methods that an operation with the verb may have. An
// operation that changes something is never a GET, except `receive`, whose method a third party chooses.

const changing = ['POST'];
const reading = ['GET'];

/** Verb to its meaning and its HTTP methods. A new verb is added here with a meaning that no other has. */
export const verbs = {
  // Reading
  get: {
    meaning:
      'reads one thing or one computed answer and changes nothing; POST where the question needs a body',
    methods: ['GET', 'POST'],
  },
  list: { meaning: 'reads a collection, whole or page by page', methods: reading },
  follow: { meaning: 'keeps the connection and sends what happens as it happens', methods: reading },
  check: {
    meaning: 'examines a thing now and says how it stands, changing nothing',
    methods: ['GET', 'POST'],
  },
  show: { meaning: 'answers a page for the browser of a person', methods: reading },
  // Records
  create: {
    meaning: 'makes a new thing; without an Idempotency-Key a second call makes a second one',
    methods: changing,
  },
  upsert: {
    meaning: 'makes the thing of that key or replaces it; a second call changes nothing more',
    methods: ['POST', 'PUT'],
  },
  import: { meaning: 'upserts many things, all or none', methods: changing },
  update: {
    meaning: 'changes the named members of a thing that exists and leaves the others',
    methods: ['POST', 'PATCH'],
  },
  remove: { meaning: 'deletes a thing for good', methods: ['POST', 'DELETE'] },
  fork: { meaning: 'makes a new thing that shares the past of an old one', methods: changing },
  // States
  pause: { meaning: 'stops a thing from working until it is activated', methods: changing },
  activate: { meaning: 'lets a paused thing work again', methods: changing },
  archive: { meaning: 'ends a thing for good and keeps its record', methods: changing },
  block: { meaning: 'refuses a person until unblocked', methods: changing },
  unblock: { meaning: 'ends a block', methods: changing },
  // Work that continues after the answer
  start: {
    meaning: 'begins something that goes on after the answer and is asked for again by its id',
    methods: changing,
  },
  continue: { meaning: 'gives something started the input that it waits for', methods: changing },
  cancel: { meaning: 'ends something started before its end', methods: changing },
  decide: { meaning: 'answers a question that something started has put to a person', methods: changing },
  control: { meaning: 'moves a service of the agent from one state to another', methods: changing },
  undo: { meaning: 'sets back what something started has changed, until it is redone', methods: changing },
  redo: { meaning: 'puts what was undone in place again', methods: changing },
  compact: { meaning: 'shortens what a model is shown of a past, and keeps the past', methods: changing },
  // Credentials
  login: { meaning: 'trades a name and a secret for a token', methods: changing },
  logout: { meaning: 'makes the token of the call itself worthless', methods: changing },
  issue: { meaning: 'hands out a credential, which is shown this once', methods: changing },
  revoke: { meaning: 'makes credentials worthless at once', methods: changing },
  register: { meaning: 'makes an account for the caller', methods: changing },
  verify: { meaning: 'proves with a code that an address belongs to the caller', methods: changing },
  request: {
    meaning: 'asks for a message with a code, and answers alike whether the address is known',
    methods: changing,
  },
  reset: { meaning: 'replaces a secret, a requested code being the proof', methods: changing },
  change: { meaning: 'replaces a secret, the old one being the proof', methods: changing },
  // Money
  grant: { meaning: 'adds credits to an account', methods: changing },
  deduct: { meaning: 'takes credits from an account', methods: changing },
  // Models
  generate: { meaning: 'has a model make something and answers with the whole of it', methods: changing },
  stream: {
    meaning: 'has a model make something and answers with its parts as they come',
    methods: changing,
  },
  synthesize: { meaning: 'has a model make sound from text', methods: changing },
  transcribe: { meaning: 'has a model make text from sound', methods: changing },
  embed: { meaning: 'has a model make vectors from text', methods: changing },
  rerank: { meaning: 'has a model order documents by a question', methods: changing },
  // Instructions and actions
  execute: { meaning: 'has the agent carry out instructions', methods: changing },
  prompt: { meaning: 'gives a session its next input and does not wait for the answer', methods: changing },
  moderate: { meaning: 'has a model check content for harm', methods: changing },
  regenerate: {
    meaning: 'has the model answer an input of a session again, in place of its former answer',
    methods: changing,
  },
  send: { meaning: 'puts a message into a conversation', methods: changing },
  call: {
    meaning: 'runs an action or command that a project, plugin or service has named',
    methods: ['GET', 'POST'],
  },
  // Third parties
  receive: { meaning: 'takes what a third party sends on its own account', methods: ['GET', 'POST'] },
};
