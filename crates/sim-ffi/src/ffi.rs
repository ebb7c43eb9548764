//! The functions of the C interface.
//!
//! Each function checks its pointers and runs the station behind [`catch_unwind`]. It returns a
//! [`CarnetSimStatus`]; `carnet_sim_last_error` has the reason of an error in words.

use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr;
use std::slice;

use carnet_base::{Time, WallTime};
use carnet_geonet::ipv6_adaptation::HostFrame;
use carnet_geonet::{MacAddress, ReceivedFrame};
use carnet_station::io::{
    Area, AreaShape, Delivered, GeonetOutput, GeonetRequest, GeonetTransport, GnPacketType, Input,
    NemoOutput, Output, Position,
};

use crate::station::{InputRefusal, SimulatedStation, SimulationOptions};
use crate::types::{
    CARNET_SIM_ABI_VERSION, CARNET_SIM_NEVER, CarnetSimAddress, CarnetSimOptions, CarnetSimOutput,
    CarnetSimOutputKind, CarnetSimPosition, CarnetSimRequest, CarnetSimStatus,
};

/// A station of one node.
pub struct CarnetSimStation {
    inner: SimulatedStation,
    has_panicked: bool,
    last_error: String,
}

impl CarnetSimStation {
    /// Runs `call` unless the station has panicked, and converts its result, or its panic, to a status.
    fn call_station(
        &mut self,
        call: impl FnOnce(&mut SimulatedStation) -> Result<(), InputRefusal>,
    ) -> CarnetSimStatus {
        if self.has_panicked {
            return CarnetSimStatus::Panicked;
        }
        match catch_unwind(AssertUnwindSafe(|| call(&mut self.inner))) {
            Ok(Ok(())) => CarnetSimStatus::Done,
            Ok(Err(refusal)) => {
                let (status, words) = match refusal {
                    InputRefusal::NotDrained => {
                        (CarnetSimStatus::NotDrained, "outputs wait still".to_string())
                    }
                    InputRefusal::TimeRunsBackwards => (
                        CarnetSimStatus::TimeRunsBackwards,
                        "the time is before that of an earlier call".into(),
                    ),
                    InputRefusal::Refused(words) => (CarnetSimStatus::Refused, words),
                };
                self.last_error = words;
                status
            }
            Err(panic) => {
                self.has_panicked = true;
                self.last_error = panic_message(panic.as_ref());
                CarnetSimStatus::Panicked
            }
        }
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
    words
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".into())
}

/// Returns the octets at a pointer; null is allowed if `length` is 0.
///
/// # Safety
/// `octets` is null or points to `length` octets that do not change as long as the slice lives.
unsafe fn octets_from_pointer<'a>(octets: *const u8, length: usize) -> Option<&'a [u8]> {
    if length == 0 {
        return Some(&[]);
    }
    // No object is larger than `isize::MAX`.
    if octets.is_null() || isize::try_from(length).is_err() {
        return None;
    }
    // SAFETY: the pointer is not null, and by the contract of this function it points to `length` octets.
    Some(unsafe { slice::from_raw_parts(octets, length) })
}

/// Returns the link-layer address at a pointer.
///
/// # Safety
/// `address` is null or points to six octets.
unsafe fn mac_from_pointer(address: *const u8) -> Option<MacAddress> {
    // SAFETY: by the contract of this function, `address` is null or points to six octets.
    unsafe { octets_from_pointer(address, 6) }?.try_into().ok()
}

/// Copies text, cut to the capacity, with a terminating zero; returns its whole length.
///
/// # Safety
/// `to` is null or points to `capacity` octets that may be written.
unsafe fn copy_text(text: &str, to: *mut c_char, capacity: usize) -> usize {
    if !to.is_null() && capacity > 0 {
        let fits = text.len().min(capacity - 1);
        // SAFETY: `fits` and the zero behind it are within `capacity`, and by contract writable.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr().cast(), to, fits);
            to.add(fits).write(0);
        }
    }
    text.len()
}

/// Returns the version of this interface, which must equal the header's `CARNET_SIM_ABI_VERSION`.
#[unsafe(no_mangle)]
pub extern "C" fn carnet_sim_abi_version() -> u32 {
    CARNET_SIM_ABI_VERSION
}

/// Returns whether a panic ends only one station, because the library was built with unwinding. If false, a
/// panic ends the process.
#[unsafe(no_mangle)]
pub extern "C" fn carnet_sim_contains_panics() -> bool {
    cfg!(panic = "unwind")
}

/// Creates a station, to be freed by `carnet_sim_free`; the outputs of its start wait. On failure returns
/// null and writes the reason to `error`, cut to `error_capacity` octets with a terminating zero.
///
/// # Safety
/// `options` points to options whose pointers point to as many octets as their lengths say. `error` is null
/// or points to `error_capacity` writable octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carnet_sim_new(
    options: *const CarnetSimOptions,
    error: *mut c_char,
    error_capacity: usize,
) -> *mut CarnetSimStation {
    // SAFETY: by the contract of this function, `options` is null or points to options.
    let made = match unsafe { options.as_ref() } {
        None => Err("no options".to_string()),
        // SAFETY: by the contract of this function, the pointers in the options point to as many octets as
        // their lengths say.
        Some(options) => unsafe { new_station(options) },
    };
    match made {
        Ok(inner) => Box::into_raw(Box::new(CarnetSimStation {
            inner,
            has_panicked: false,
            last_error: String::new(),
        })),
        Err(words) => {
            // SAFETY: by the contract of this function, `error` is null or points to `error_capacity`
            // writable octets.
            unsafe { copy_text(&words, error, error_capacity) };
            ptr::null_mut()
        }
    }
}

/// Creates a station from the options of the C interface.
///
/// # Safety
/// The pointers point to as many octets as the lengths in the options say.
unsafe fn new_station(options: &CarnetSimOptions) -> Result<SimulatedStation, String> {
    // SAFETY: by the contract of this function, `options.config` points to `config_length` octets.
    let config = unsafe { octets_from_pointer(options.config, options.config_length) }.ok_or("no config")?;
    let config = str::from_utf8(config).map_err(|error| format!("the config is not UTF-8: {error}"))?;
    // SAFETY: by the contract of this function, `options.record` points to `record_length` octets.
    let record = unsafe { octets_from_pointer(options.record, options.record_length) }
        .ok_or("no path of the recording")?;
    let record = str::from_utf8(record).map_err(|error| format!("the path is not UTF-8: {error}"))?;
    let options = SimulationOptions {
        config,
        gn_address: (options.gn_address != 0).then_some(options.gn_address),
        seed: options.seed,
        now: Time::from_nanos(options.now),
        wall_at_start: WallTime::from_unix_nanos(options.wall),
        recording_path: (!record.is_empty()).then(|| Path::new(record)),
    };
    catch_unwind(AssertUnwindSafe(|| SimulatedStation::new(&options)))
        .unwrap_or_else(|panic| Err(panic_message(panic.as_ref())))
}

/// Ends a station and its recording. Null is allowed.
///
/// # Safety
/// `station` is null, or comes from `carnet_sim_new` and has not been freed. The caller does not use it any
/// more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carnet_sim_free(station: *mut CarnetSimStation) {
    if !station.is_null() {
        // SAFETY: by contract this is the only pointer to the box.
        let station = unsafe { Box::from_raw(station) };
        let _contained = catch_unwind(AssertUnwindSafe(|| drop(station)));
    }
}

/// Passes a frame of the radio to the station.
///
/// # Safety
/// As for [`carnet_sim_handle_frame`].
unsafe fn with_received_frame(
    station: *mut CarnetSimStation,
    source: *const u8,
    destination: *const u8,
    packet: *const u8,
    length: usize,
    call: impl FnOnce(&mut SimulatedStation, ReceivedFrame<'_>) -> Result<(), InputRefusal>,
) -> CarnetSimStatus {
    // SAFETY: by the contract of this function, all four pointers are null or valid.
    let (station, source, destination, packet) = unsafe {
        (
            station.as_mut(),
            mac_from_pointer(source),
            mac_from_pointer(destination),
            octets_from_pointer(packet, length),
        )
    };
    let (Some(station), Some(source), Some(destination), Some(packet)) =
        (station, source, destination, packet)
    else {
        return CarnetSimStatus::BadArgument;
    };
    station.call_station(|station| call(station, ReceivedFrame { source, destination, packet }))
}

/// Takes a frame of EtherType 0x8947 from the radio; `packet` are the octets behind the EtherType.
///
/// # Safety
/// `station` is null or comes from `carnet_sim_new`, and no other thread uses it during the call. `source`
/// and `destination` are null or point to 6 octets, `packet` to `length` octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carnet_sim_handle_frame(
    station: *mut CarnetSimStation,
    now: u64,
    source: *const u8,
    destination: *const u8,
    packet: *const u8,
    length: usize,
) -> CarnetSimStatus {
    let call = |station: &mut SimulatedStation, frame: ReceivedFrame<'_>| {
        station.handle_frame(Time::from_nanos(now), frame)
    };
    // SAFETY: the contract of this function is that of `with_received_frame`.
    unsafe { with_received_frame(station, source, destination, packet, length, call) }
}

/// Handles a frame that this station sent to one other station, which did not acknowledge it; `packet` are
/// the octets behind the EtherType.
///
/// # Safety
/// As for `carnet_sim_handle_frame`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carnet_sim_handle_unacknowledged(
    station: *mut CarnetSimStation,
    now: u64,
    source: *const u8,
    destination: *const u8,
    packet: *const u8,
    length: usize,
) -> CarnetSimStatus {
    let call = |station: &mut SimulatedStation, frame: ReceivedFrame<'_>| {
        station.handle_unacknowledged(Time::from_nanos(now), frame)
    };
    // SAFETY: the contract of this function is that of `with_received_frame`.
    unsafe { with_received_frame(station, source, destination, packet, length, call) }
}

/// Takes a frame that the host has sent on the virtual interface `link`; 0 is the interface of the config key
/// `ipv6_interface`.
///
/// # Safety
/// As for `carnet_sim_handle_frame`; `payload` is null or points to `length` octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carnet_sim_handle_host_frame(
    station: *mut CarnetSimStation,
    now: u64,
    link: u32,
    source: *const u8,
    destination: *const u8,
    ether_type: u16,
    payload: *const u8,
    length: usize,
) -> CarnetSimStatus {
    // SAFETY: by the contract of this function, all four pointers are null or valid.
    let (station, source, destination, payload) = unsafe {
        (
            station.as_mut(),
            mac_from_pointer(source),
            mac_from_pointer(destination),
            octets_from_pointer(payload, length),
        )
    };
    let (Some(station), Some(source), Some(destination), Some(payload)) =
        (station, source, destination, payload)
    else {
        return CarnetSimStatus::BadArgument;
    };
    let frame = HostFrame { destination, source, ether_type, payload };
    station.call_station(|station| station.handle_host_frame(Time::from_nanos(now), link, frame))
}

/// Takes the complete list of the host's IPv6 addresses on the virtual interface `link`.
///
/// # Safety
/// `station` as for `carnet_sim_handle_frame`; `addresses` is null or points to `count` addresses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carnet_sim_handle_addresses(
    station: *mut CarnetSimStation,
    now: u64,
    link: u32,
    addresses: *const CarnetSimAddress,
    count: usize,
) -> CarnetSimStatus {
    // SAFETY: by the contract of this function, `station` is null or comes from `carnet_sim_new`.
    let Some(station) = (unsafe { station.as_mut() }) else { return CarnetSimStatus::BadArgument };
    let fits = count.checked_mul(size_of::<CarnetSimAddress>()).is_some_and(|n| isize::try_from(n).is_ok());
    if count > 0 && (addresses.is_null() || !fits) {
        return CarnetSimStatus::BadArgument;
    }
    // SAFETY: `addresses` is not null here, and by contract it points to `count` addresses.
    let addresses = if count == 0 { &[] } else { unsafe { slice::from_raw_parts(addresses, count) } };
    let addresses = addresses.iter().map(|it| (it.address.into(), it.prefix_length.min(128))).collect();
    station.call_station(|station| {
        station.handle_input(Time::from_nanos(now), Input::VirtualAddresses { link, addresses })
    })
}

/// Takes the present position of the node. The caller passes it before all other events of the same time.
///
/// # Safety
/// `station` as for `carnet_sim_handle_frame`; `position` is null or points to a position.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carnet_sim_handle_position(
    station: *mut CarnetSimStation,
    now: u64,
    position: *const CarnetSimPosition,
) -> CarnetSimStatus {
    // SAFETY: by the contract of this function, both pointers are null or valid.
    let (Some(station), Some(position)) = (unsafe { (station.as_mut(), position.as_ref()) }) else {
        return CarnetSimStatus::BadArgument;
    };
    let CarnetSimPosition { timestamp, latitude, longitude, speed, heading, accurate } = *position;
    let position = Position { timestamp, latitude, longitude, accurate, speed, heading };
    station.call_station(|station| station.handle_input(Time::from_nanos(now), Input::Position(position)))
}

/// Takes a payload to send over GeoNetworking.
///
/// # Safety
/// `station` as for `carnet_sim_handle_frame`; `request` is null or points to a request, `payload` to
/// `length` octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carnet_sim_handle_request(
    station: *mut CarnetSimStation,
    now: u64,
    request: *const CarnetSimRequest,
    payload: *const u8,
    length: usize,
) -> CarnetSimStatus {
    // SAFETY: by the contract of this function, all three pointers are null or valid.
    let (station, request, payload) =
        unsafe { (station.as_mut(), request.as_ref(), octets_from_pointer(payload, length)) };
    let (Some(station), Some(request), Some(payload)) = (station, request, payload) else {
        return CarnetSimStatus::BadArgument;
    };
    let area = Area {
        shape: AreaShape::Circle,
        latitude: request.latitude,
        longitude: request.longitude,
        distance_a: request.radius,
        distance_b: 0,
        angle: 0,
    };
    let transport = match request.transport {
        0 => GeonetTransport::GeoUnicast(request.destination),
        1 => GeonetTransport::GeoBroadcast(area),
        2 => GeonetTransport::GeoAnycast(area),
        3 => GeonetTransport::TopologicallyScoped,
        4 => GeonetTransport::SingleHop,
        _ => return CarnetSimStatus::BadArgument,
    };
    let request = GeonetRequest {
        transport,
        next_header: request.next_header,
        store_carry_forward: request.store,
        traffic_class: 0,
        lifetime_ms: (request.lifetime_ms > 0).then_some(request.lifetime_ms),
        hop_limit: (request.hop_limit > 0).then_some(request.hop_limit),
        payload: payload.to_vec(),
    };
    station.call_station(|station| station.handle_input(Time::from_nanos(now), Input::Geonet(request)))
}

/// Takes an IPv6 packet that the host's routing sends into the tunnel device.
///
/// # Safety
/// As for `carnet_sim_handle_frame`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carnet_sim_handle_packet(
    station: *mut CarnetSimStation,
    now: u64,
    packet: *const u8,
    length: usize,
) -> CarnetSimStatus {
    // SAFETY: by the contract of this function, both pointers are null or valid.
    let (station, packet) = unsafe { (station.as_mut(), octets_from_pointer(packet, length)) };
    let (Some(station), Some(packet)) = (station, packet) else { return CarnetSimStatus::BadArgument };
    station
        .call_station(|station| station.handle_input(Time::from_nanos(now), Input::Packet(packet.to_vec())))
}

/// Takes any other input as JSON: the value of `"input"` in a line of a recording.
///
/// # Safety
/// As for `carnet_sim_handle_frame`; `json` is null or points to `length` octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carnet_sim_handle_input(
    station: *mut CarnetSimStation,
    now: u64,
    json: *const u8,
    length: usize,
) -> CarnetSimStatus {
    // SAFETY: by the contract of this function, both pointers are null or valid.
    let (station, json) = unsafe { (station.as_mut(), octets_from_pointer(json, length)) };
    let (Some(station), Some(json)) = (station, json) else { return CarnetSimStatus::BadArgument };
    station.call_station(|station| {
        let input = serde_json::from_slice(json).map_err(|error| InputRefusal::Refused(error.to_string()))?;
        station.handle_input(Time::from_nanos(now), input)
    })
}

/// Runs the timers that are due; the caller calls it when `carnet_sim_deadline` is reached.
///
/// # Safety
/// `station` as for `carnet_sim_handle_frame`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carnet_sim_handle_timeout(
    station: *mut CarnetSimStation,
    now: u64,
) -> CarnetSimStatus {
    // SAFETY: by the contract of this function, `station` is null or comes from `carnet_sim_new`.
    let Some(station) = (unsafe { station.as_mut() }) else { return CarnetSimStatus::BadArgument };
    station.call_station(|station| station.handle_input(Time::from_nanos(now), Input::Timeout))
}

/// Returns when `carnet_sim_handle_timeout` is due, nanoseconds; `CARNET_SIM_NEVER` if no timer runs.
///
/// # Safety
/// `station` as for `carnet_sim_handle_frame`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carnet_sim_deadline(station: *mut CarnetSimStation) -> u64 {
    // SAFETY: by the contract of this function, `station` is null or comes from `carnet_sim_new`.
    let Some(station) = (unsafe { station.as_mut() }) else { return CARNET_SIM_NEVER };
    let mut deadline = None;
    station.call_station(|station| {
        deadline = station.next_deadline();
        Ok(())
    });
    deadline.map_or(CARNET_SIM_NEVER, Time::as_nanos)
}

/// Takes the next output; returns `Empty` if no output is left. Before that, the station refuses every input.
///
/// # Safety
/// `station` as for `carnet_sim_handle_frame`; `output` is null or points to a writable output.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carnet_sim_poll_output(
    station: *mut CarnetSimStation,
    output: *mut CarnetSimOutput,
) -> CarnetSimStatus {
    // SAFETY: by the contract of this function, `station` is null or comes from `carnet_sim_new`.
    let Some(station) = (unsafe { station.as_mut() }) else { return CarnetSimStatus::BadArgument };
    if output.is_null() {
        return CarnetSimStatus::BadArgument;
    }
    let mut taken = None;
    let status = station.call_station(|station| {
        taken = station.poll_output().map(describe_output).transpose()?.map(|(mut described, octets)| {
            let octets = station.keep_output_octets(octets);
            (described.octets, described.length) = (octets.as_ptr(), octets.len());
            described
        });
        Ok(())
    });
    match (status, taken) {
        (CarnetSimStatus::Done, Some(taken)) => {
            // SAFETY: `output` is not null, and by contract it is writable.
            unsafe { output.write(taken) };
            CarnetSimStatus::Done
        }
        (CarnetSimStatus::Done, None) => CarnetSimStatus::Empty,
        (other, _) => other,
    }
}

/// Converts an output to the C type. Also returns the octets of the output.
fn describe_output(output: Output) -> Result<(CarnetSimOutput, Vec<u8>), InputRefusal> {
    let mut described = CarnetSimOutput {
        kind: CarnetSimOutputKind::Other,
        link: 0,
        station: 0,
        source: [0; 6],
        destination: [0; 6],
        ether_type: 0,
        next_header: 0,
        hops: 0,
        octets: ptr::null(),
        length: 0,
    };
    let octets = match output {
        Output::Geonet(GeonetOutput::Frame(frame)) => {
            described.kind = CarnetSimOutputKind::Frame;
            (described.source, described.destination) = (frame.source, frame.destination);
            frame.packet
        }
        Output::Geonet(GeonetOutput::VirtualFrame(frame)) => {
            described.kind = CarnetSimOutputKind::HostFrame;
            (described.link, described.ether_type) = (frame.link, frame.ether_type);
            (described.source, described.destination) = (frame.source, frame.destination);
            frame.payload
        }
        Output::Geonet(GeonetOutput::Ipv6 { link, destination, source, delivered }) => {
            described.kind = CarnetSimOutputKind::HostFrame;
            (described.link, described.ether_type) = (link, 0x86dd);
            (described.source, described.destination) = (source, destination);
            (described.station, described.hops) = (delivered.source, hop_count_of(&delivered));
            delivered.payload
        }
        Output::Geonet(GeonetOutput::Delivered(delivered)) => {
            described.kind = CarnetSimOutputKind::Delivered;
            (described.station, described.hops) = (delivered.source, hop_count_of(&delivered));
            described.next_header = delivered.next_header;
            delivered.payload
        }
        Output::Nemo(NemoOutput::Packet(packet)) => {
            described.kind = CarnetSimOutputKind::Packet;
            packet
        }
        other => serde_json::to_vec(&other).map_err(|error| InputRefusal::Refused(error.to_string()))?,
    };
    Ok((described, octets))
}

/// Returns the number of hops that a payload has taken; one for a single-hop packet.
fn hop_count_of(delivered: &Delivered) -> u8 {
    match delivered.kind {
        GnPacketType::Shb => 1,
        _ => delivered.maximum_hop_limit.saturating_sub(delivered.remaining_hop_limit).saturating_add(1),
    }
}

/// Writes all counters to `text` as a JSON object, cut to `capacity` octets with a terminating zero. Returns
/// the whole length.
///
/// # Safety
/// `station` as for `carnet_sim_handle_frame`; `text` is null or points to `capacity` writable octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carnet_sim_counters(
    station: *mut CarnetSimStation,
    text: *mut c_char,
    capacity: usize,
) -> usize {
    // SAFETY: by the contract of this function, `station` is null or comes from `carnet_sim_new`.
    let Some(station) = (unsafe { station.as_mut() }) else { return 0 };
    let mut counters = String::new();
    station.call_station(|station| {
        counters = station.counters_json();
        Ok(())
    });
    // SAFETY: by the contract of this function, `text` is null or points to `capacity` writable octets.
    unsafe { copy_text(&counters, text, capacity) }
}

/// Writes the reason of the last error to `text`, cut to `capacity` octets with a terminating zero. Returns
/// the whole length.
///
/// # Safety
/// As for `carnet_sim_counters`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carnet_sim_last_error(
    station: *mut CarnetSimStation,
    text: *mut c_char,
    capacity: usize,
) -> usize {
    // SAFETY: by the contract of this function, `station` is null or comes from `carnet_sim_new`.
    let Some(station) = (unsafe { station.as_mut() }) else { return 0 };
    // SAFETY: by the contract of this function, `text` is null or points to `capacity` writable octets.
    unsafe { copy_text(&station.last_error, text, capacity) }
}

/// Writes all inputs recorded so far to the file of the recording.
///
/// # Safety
/// `station` as for `carnet_sim_handle_frame`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn carnet_sim_flush(station: *mut CarnetSimStation) -> CarnetSimStatus {
    // SAFETY: by the contract of this function, `station` is null or comes from `carnet_sim_new`.
    let Some(station) = (unsafe { station.as_mut() }) else { return CarnetSimStatus::BadArgument };
    station.call_station(SimulatedStation::flush_recording)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_ends_only_one_simulated_station() {
        let config =
            "[station]\nname = 'node'\n[geonet]\ninterface = 'radio'\nposition = 'gpsd://localhost'\n";
        let options = CarnetSimOptions {
            config: config.as_ptr(),
            config_length: config.len(),
            record: ptr::null(),
            record_length: 0,
            gn_address: 0x0200_0000_0001,
            seed: 1,
            now: 0,
            wall: 0,
        };
        // SAFETY: the options and the buffers live as long as the calls, and the station is freed at the end.
        unsafe {
            let station = carnet_sim_new(&raw const options, ptr::null_mut(), 0);
            let status = (*station).call_station(|_| panic!("a panic of the test"));
            assert_eq!(status, CarnetSimStatus::Panicked);
            let mut words = [0; 8];
            assert_eq!(carnet_sim_last_error(station, words.as_mut_ptr(), words.len()), 19);
            assert_eq!(words.map(|c: c_char| c as u8), *b"a panic\0");
            assert_eq!(carnet_sim_handle_timeout(station, 0), CarnetSimStatus::Panicked);
            assert_eq!(carnet_sim_deadline(station), CARNET_SIM_NEVER);
            carnet_sim_free(station);
        }
    }
}
