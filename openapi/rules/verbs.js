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
    meaning: 'reads one thing or one computed answer and changes nothing; POST when the request needs a body',
    methods: ['GET', 'POST'],
  },
  list: { meaning: 'reads a collection, whole or page by page', methods: reading },
  follow: { meaning: 'keeps the connection open and sends events as they happen', methods: reading },
  check: {
    meaning: 'examines a thing now and reports its state, changing nothing',
    methods: ['GET', 'POST'],
  },
  show: { meaning: 'answers with a page for a browser', methods: reading },
  // Records
  create: {
    meaning: 'creates a new thing; without an Idempotency-Key a second call creates a second thing',
    methods: changing,
  },
  upsert: {
    meaning: 'creates the thing with that key or replaces it; a second call changes nothing more',
    methods: ['POST', 'PUT'],
  },
  import: { meaning: 'upserts many things, all or none', methods: changing },
  update: {
    meaning: 'changes the named members of a thing that exists and leaves the others',
    methods: ['POST', 'PATCH'],
  },
  remove: { meaning: 'deletes a thing for good', methods: ['POST', 'DELETE'] },
  fork: { meaning: 'creates a new thing that shares the history of an existing one', methods: changing },
  // States
  pause: { meaning: 'stops a thing from working until it is activated', methods: changing },
  activate: { meaning: 'lets a paused thing work again', methods: changing },
  archive: { meaning: 'ends a thing for good and keeps its record', methods: changing },
  block: { meaning: 'refuses a person until unblocked', methods: changing },
  unblock: { meaning: 'ends a block', methods: changing },
  // Work that continues after the answer
  start: {
    meaning: 'begins work that continues after the answer; its id reads the result later',
    methods: changing,
  },
  continue: { meaning: 'gives started work the input that it waits for', methods: changing },
  cancel: { meaning: 'stops started work before it is complete', methods: changing },
  decide: { meaning: 'answers a question that started work has put to a person', methods: changing },
  control: { meaning: 'moves a service of the agent from one state to another', methods: changing },
  undo: { meaning: 'reverts what started work has changed, until it is redone', methods: changing },
  redo: { meaning: 'restores what was undone', methods: changing },
  compact: {
    meaning: 'shortens the history that a model sees, and keeps the whole history',
    methods: changing,
  },
  // Credentials
  login: { meaning: 'exchanges a name and a secret for a token', methods: changing },
  logout: { meaning: 'revokes the token of the call itself', methods: changing },
  issue: { meaning: 'creates a credential, which is shown only once', methods: changing },
  revoke: { meaning: 'makes credentials invalid at once', methods: changing },
  register: { meaning: 'creates an account for the caller', methods: changing },
  verify: { meaning: 'proves with a code that an address belongs to the caller', methods: changing },
  request: {
    meaning: 'requests a message with a code; the answer does not reveal whether the address is known',
    methods: changing,
  },
  reset: { meaning: 'replaces a secret; the proof is a requested code', methods: changing },
  change: { meaning: 'replaces a secret; the proof is the old secret', methods: changing },
  // Money
  grant: { meaning: 'adds credits to an account', methods: changing },
  deduct: { meaning: 'takes credits from an account', methods: changing },
  // Models
  generate: { meaning: 'has a model generate content and answers with all of it at once', methods: changing },
  stream: {
    meaning: 'has a model generate content and answers with its parts as they arrive',
    methods: changing,
  },
  synthesize: { meaning: 'has a model turn text into audio', methods: changing },
  transcribe: { meaning: 'has a model turn audio into text', methods: changing },
  embed: { meaning: 'has a model turn text into vectors', methods: changing },
  rerank: { meaning: 'has a model order documents by relevance to a query', methods: changing },
  // Instructions and actions
  execute: { meaning: 'has the agent carry out instructions', methods: changing },
  prompt: { meaning: 'gives a session its next input and does not wait for the answer', methods: changing },
  moderate: { meaning: 'has a model check content for harm', methods: changing },
  regenerate: {
    meaning: 'has the model answer an input of a session again, replacing its former answer',
    methods: changing,
  },
  send: { meaning: 'puts a message into a conversation', methods: changing },
  call: {
    meaning: 'runs an action or command that a project, plugin or service has named',
    methods: ['GET', 'POST'],
  },
  // Third parties
  receive: { meaning: 'accepts what a third party sends on its own initiative', methods: ['GET', 'POST'] },
};
