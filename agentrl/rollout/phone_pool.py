"""Open the phones that a configuration names, as a pool."""

from dataclasses import asdict

from agentrl import devices, env
from agentrl.config import DevicesConfig
from agentrl.devices.device_opener import DeviceOpener
from agentrl.replay.live_phones import LivePhone


def open_phone_pool(
    settings: DevicesConfig,
    env_id: str,
    run_seed: int,
    wrap: devices.DeviceWrapper = lambda phone: phone,
    lease_s: float = float("inf"),
) -> devices.DevicePool:
    """Open the phones for use in this process.

    Args:
        settings: the phones and how to connect to them.
        env_id: the environment, whose app the phones need.
        run_seed: of the whole run.
        wrap: see `agentrl.devices.open_source`.
        lease_s: after which a lease expires unless it is renewed.

    Raises:
        ConfigError: a phone cannot be reached.
    """
    app = env.find_env(env_id).app
    return devices.open_source(
        settings.source,
        deadlines=devices.Deadlines(**asdict(settings.deadlines)),
        driver=settings.driver,
        capture=settings.capture,
        input=settings.input,
        public=settings.public_addresses,
        apps=[] if app is None else [app],
        size=(settings.size[0], settings.size[1]),
        effect_delay_ms=(settings.effect_delay_ms[0], settings.effect_delay_ms[1]),
        seed=run_seed,
        options=devices.PoolOptions(
            quarantine_after=settings.quarantine_after,
            quarantine_s=settings.quarantine_s,
            patience_s=settings.patience_s,
            lease_s=lease_s,
            reboot=settings.reboot,
        ),
        wrap=wrap,
    )


def phone_states(pool: devices.DevicePool) -> list[LivePhone]:
    """The state of a pool's phones, for the live view."""
    return [
        LivePhone(
            serial=phone.serial,
            state=phone.state,
            leases=phone.leases,
            failures=phone.failures,
            busy_share=phone.busy_share,
        )
        for phone in pool.stats()
    ]


def phone_opener(settings: DevicesConfig, wrap: devices.DeviceWrapper) -> DeviceOpener:
    """Opens single phones of a pool that another process owns."""
    return DeviceOpener(
        driver=settings.driver,
        capture=settings.capture,
        input=settings.input,
        deadlines=devices.Deadlines(**asdict(settings.deadlines)),
        public=tuple(settings.public_addresses),
        wrap=wrap,
    )
