// The form on an operation's page that sends the request of the samples: to the gateway that serves
// the page, or to an agent. A page from a disk has no server to call, so its form stays hidden.

interface Elements {
  form: HTMLFormElement;
  send: HTMLButtonElement;
  stop: HTMLButtonElement;
  status: HTMLElement;
  output: HTMLElement;
}

// More text than this would make the page slow.
const maxShownCharacters = 200_000;

export function activateRequestForm(): void {
  const form = document.querySelector<HTMLFormElement>('.try');
  if (!form || !location.protocol.startsWith('http')) return;
  const find = <T extends HTMLElement>(selector: string) => form.querySelector<T>(selector);
  const send = find<HTMLButtonElement>('button[type="submit"]');
  const stop = find<HTMLButtonElement>('.stop');
  const status = find('.status');
  const output = find('.output');
  if (!send || !stop || !status || !output) return;
  const elements: Elements = { form, send, stop, status, output };
  let controller: AbortController | undefined;
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    controller = new AbortController();
    void sendRequest(elements, controller.signal);
  });
  stop.addEventListener('click', () => controller?.abort());
  form.hidden = false;
}

async function sendRequest(elements: Elements, signal: AbortSignal): Promise<void> {
  const { send, stop, status, output } = elements;
  const startedMs = performance.now();
  const code = output.querySelector('code');
  const elapsed = () => `${Math.round(performance.now() - startedMs)} ms`;
  send.disabled = true;
  stop.hidden = false;
  status.textContent = 'Waiting for the response.';
  if (code) code.textContent = '';
  output.hidden = true;
  try {
    const response = await fetch(addressOf(elements.form), { ...readRequest(elements.form), signal });
    status.textContent = `${response.status}, headers after ${elapsed()}`;
    output.hidden = false;
    await showBody(response, (text) => {
      if (code) code.textContent = text;
    });
    status.textContent = `${response.status} after ${elapsed()}`;
  } catch (error) {
    status.textContent = signal.aborted ? `Stopped after ${elapsed()}.` : failureText(elements.form, error);
  } finally {
    send.disabled = false;
    stop.hidden = true;
  }
}

function addressOf(form: HTMLFormElement): string {
  const server = form.querySelector<HTMLInputElement>('#try-server')?.value.trim() ?? '';
  const target = form.querySelector<HTMLInputElement>('#try-target')?.value.trim() ?? '';
  return new URL(target, server === '' ? location.origin : server).href;
}

function readRequest(form: HTMLFormElement): RequestInit {
  const { method = 'GET', headers: sampleHeaders = '{}' } = form.dataset;
  const headers = new Headers(JSON.parse(sampleHeaders) as Record<string, string>);
  const token = document.querySelector<HTMLInputElement>('#token')?.value.trim() ?? '';
  if (token !== '') headers.set('authorization', `Bearer ${token}`);
  const body = form.querySelector<HTMLTextAreaElement>('#try-body')?.value;
  if (body !== undefined) headers.set('content-type', 'application/json');
  // The token is the only credential: the page sends no cookies.
  return { method, headers, credentials: 'omit', cache: 'no-store', ...(body === undefined ? {} : { body }) };
}

async function showBody(response: Response, show: (text: string) => void): Promise<void> {
  const mediaType = response.headers.get('content-type') ?? '';
  if (mediaType.includes('json')) return show(formatJson(await response.text()));
  if (mediaType !== '' && !/^text\/|xml/.test(mediaType)) {
    const { size } = await response.blob();
    return show(`${size} bytes of ${mediaType}`);
  }
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (let piece = await reader?.read(); piece?.done === false; piece = await reader?.read()) {
    text = `${text}${piece.value}`.slice(0, maxShownCharacters);
    show(text);
  }
}

function formatJson(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2).slice(0, maxShownCharacters);
  } catch {
    return text.slice(0, maxShownCharacters);
  }
}

function failureText(form: HTMLFormElement, error: unknown): string {
  if (form.querySelector('#try-server') !== null)
    return (
      'No answer that this page may read. ' +
      `Is the agent running, with AGENT_ALLOW_ORIGIN=${location.origin}?`
    );
  return `No answer: ${error instanceof Error ? error.message : String(error)}`;
}
