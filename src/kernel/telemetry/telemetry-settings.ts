// The settings of metrics and traces, common to gateway and agent: rows for their tables, and the
// parsed result.
import { decodePercent } from '../percent-encoding.ts';
import { integer, optionalInteger, optionalText, secretText, SettingError, text } from '../settings.ts';
import type { TelemetrySettings } from './telemetry.ts';

/** The rows. The agent's port has its own key, since both servers may be started with one environment. */
export function telemetryRows({ prefix, serviceName }: { prefix: '' | 'AGENT_'; serviceName: string }) {
  return {
    metricsPort: optionalInteger(
      `${prefix}METRICS_PORT`,
      'Port on which Prometheus reads metrics, at /metrics; without it there are none. 0 takes any free one.',
      { flag: 'metrics-port', min: 0, max: 65535 },
    ),
    metricsHost: text(`${prefix}METRICS_HOST`, '127.0.0.1', 'Address of that port.', {
      flag: 'metrics-host',
    }),
    otlpEndpoint: optionalText(
      'OTEL_EXPORTER_OTLP_ENDPOINT',
      'Collector that traces are sent to, over OTLP/HTTP; without it there are none.',
      { flag: null },
    ),
    otlpHeaders: secretText(
      'OTEL_EXPORTER_OTLP_HEADERS',
      'Headers for it, such as its key: name=value, separated by commas.',
    ),
    traceServiceName: text('OTEL_SERVICE_NAME', serviceName, 'Service name of the traces.', {
      flag: null,
    }),
    tracePercent: integer(
      'TRACE_PERCENT',
      100,
      'Percentage of the traces begun here that is kept; a trace begun by a caller keeps its sampling decision.',
      { flag: null, min: 0, max: 100 },
    ),
  };
}

interface TelemetryValues {
  metricsPort: number | undefined;
  metricsHost: string;
  otlpEndpoint: string | undefined;
  otlpHeaders: string | undefined;
  traceServiceName: string;
  tracePercent: number;
}

/** Throws a SettingError for an endpoint that is not an http or https address. */
export function telemetrySettings({
  metricsPort,
  metricsHost,
  otlpEndpoint,
  otlpHeaders,
  traceServiceName,
  tracePercent,
}: TelemetryValues): TelemetrySettings {
  if (otlpEndpoint !== undefined && !isHttpAddress(otlpEndpoint)) {
    throw new SettingError(
      `OTEL_EXPORTER_OTLP_ENDPOINT takes an http or https address, such as http://127.0.0.1:4318, not "${otlpEndpoint}".`,
    );
  }
  return {
    metrics: metricsPort === undefined ? null : { host: metricsHost, port: metricsPort },
    traces:
      otlpEndpoint === undefined
        ? null
        : {
            endpoint: otlpEndpoint,
            headers: otlpHeaders,
            serviceName: traceServiceName,
            sampledShare: tracePercent / 100,
          },
  };
}

function isHttpAddress(address: string): boolean {
  return URL.canParse(address) && /^https?:$/.test(new URL(address).protocol);
}

/** Values of the settings that must not appear in the log. */
export function telemetrySecrets({ traces }: TelemetrySettings): string[] {
  const encodedValues = (traces?.headers ?? '')
    .split(',')
    .map((pair) => pair.slice(pair.indexOf('=') + 1).trim());
  // The values are sent decoded.
  const values = [...encodedValues, ...encodedValues.map(decodePercent)];
  const keys = values.map((value) => value.replace(/^(?:Basic|Bearer)(?: |%20)+/i, ''));
  return [...new Set([...values, ...keys])].filter((value) => value !== '');
}
